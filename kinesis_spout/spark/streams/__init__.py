"""Several streams in one query on Spark: an engine for each, under one handle, and jobs in turn.

What a stream's engine does is in ``spark.driver``. Begin with ``streams_query``.
"""
