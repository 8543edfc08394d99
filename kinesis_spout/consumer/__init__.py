"""Owning shards, commits, dead letters and counters: what every door of ``KinesisSpout`` shares.

How records are read and handed out belongs to the doors (``plain``, ``spark``). Begin with ``consumer``.
"""
