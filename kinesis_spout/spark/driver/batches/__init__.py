"""A micro-batch from its launch to its end: packed, run, settled, and what of it is read again.

``engine`` decides what goes into a micro-batch, and when. Begin with ``running_batches``, then ``settling``.
"""
