"""The streaming read: what is read ahead of Spark, which records make the next batch, what its tasks read.

How pages travel to the tasks is ``pages``. Begin with ``stream_reader``, then ``read_ahead``.
"""
