"""The state of each record of one shard: the linked ack map, its spans, their deadlines, what was restored.

What follows from a failure is ``local_shard``'s. Begin with ``inflight_record_tracker``.
"""
