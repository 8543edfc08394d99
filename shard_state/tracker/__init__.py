"""The state of each record of one shard: the linked ack map, its spans, their deadlines, what was restored.

``local_shard`` says what follows from a failure. Begin with ``inflight_record_tracker``.
"""
