"""The driver's own reading: polls of the shards that are at their tip, and what they brought.

Slices that executors read are ``batches``'. Begin with ``tip_poller``.
"""
