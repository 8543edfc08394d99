"""What the options about ZooKeeper have in common: the form of an ACL, which go together, and what they become.

Not the options: they are rows of ``table.zookeeper``. ``place`` is what needs them as the settings of a session.
"""
