"""The stored progress of an application: how it begins, what is committed, and what operators do with it.

``ownerships`` (above) holds who owns the shards; ``nodes`` and ``paths`` (above) the nodes. Begin with ``store``.
"""
