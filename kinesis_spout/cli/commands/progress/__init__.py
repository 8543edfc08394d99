"""The commands for what an application has done: its shards, members and checkpoints, and their pauses.

What they show is read by ``stored_progress``, of ``kinesis_spout.cli``. Begin with ``shards``.
"""
