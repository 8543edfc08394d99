"""What every door of ``KinesisSpout`` shares: owning shards, commits, dead letters, and what is counted.

How records are read and handed out is the doors' (``plain``, ``spark``). Begin with ``consumer``.
"""
