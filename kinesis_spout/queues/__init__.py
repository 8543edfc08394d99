"""What sits before and after a consumer: the producer with its spool, coalescing, and rates.

Nothing here knows of Spark; where the doors use it, they import it from here. Putting itself, in full calls and
aggregates, is ``kinesis/write``. Begin with ``producer``.
"""
