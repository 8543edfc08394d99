"""How a member owns its shards: the leader assigns them; each member takes what is its own and lets the rest go.

Which shards those are is ``consumer.sharing``'s; what is read of them, and stored, the folder above's. Begin with
``ownership``.
"""
