"""How a member owns its shards: the leader assigns them; each member takes its own and lets the rest go.

Which shards those are is in ``consumer.sharing``; reading and storing, in the folder above. Begin with
``ownership``.
"""
