"""The members of an application, its leader, the owners of its shards, and its pauses.

Their progress is in ``progress``. Begin with ``zookeeper_coordinator``, then ``zookeeper_group``.
"""
