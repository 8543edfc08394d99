"""A ZooKeeper in memory, and the ports on it: store, coordinator, group, election.

They take the rules, but nothing that talks, from ``kinesis_spout.zookeeper``. Begin with ``in_memory_zookeeper``.
"""
