"""A micro-batch from its launch to its end: packed, run, settled, and what of it is read again.

What goes into a micro-batch, and when, is ``engine``'s. Begin with ``running_batches``, then ``settling``.
"""
