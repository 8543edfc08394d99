"""The streaming read: what is read ahead of Spark, which records make the next batch, what its tasks read.

``pages`` brings the pages to the tasks. Begin with ``stream_reader``, then ``read_ahead``.
"""
