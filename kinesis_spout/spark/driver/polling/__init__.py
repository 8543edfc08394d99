"""The driver's own reading: polls of the shards that are at their tip, and the records they brought.

Slices that executors read are in ``batches``. Begin with ``tip_poller``.
"""
