"""Which member of a group owns which shard: what is stored of it, and the plan of the leader.

The shards themselves are ``shards``'. Begin with ``assignment``, then ``assignment_planner``.
"""
