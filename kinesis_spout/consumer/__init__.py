"""Owning shards, commits, dead letters and counters: what every door of ``KinesisSpout`` shares.

The doors (``plain``, ``spark``) read records and hand them out. Begin with ``consumer``.
"""
