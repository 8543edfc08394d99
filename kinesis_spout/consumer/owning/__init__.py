"""The ownership of shards: the leader assigns them; each member takes and commits its own, and frees others.

Which shards those are is in ``consumer.sharing``; reading them is the door's. Begin with ``chores``.
"""
