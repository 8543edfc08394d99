"""The shards of each member of a group: the stored form, and the leader's plan.

The shards themselves are ``shards``'. Begin with ``assignment``, then ``assignment_planner``.
"""
