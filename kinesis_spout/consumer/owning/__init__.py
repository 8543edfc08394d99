"""The ownership of shards: the leader assigns them; each member takes and commits its own, and frees others.

``consumer.sharing`` says which shards those are; the doors read them. Begin with ``chores``.
"""
