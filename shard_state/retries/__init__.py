"""Failed records of one shard: whether and when each comes again, and who waits behind it.

That a record failed is the tracker's. Begin with ``retry_policy``, then ``ordered_retries``.
"""
