"""The slices of a micro-batch, as values, and how a slice is halved until it holds only what kills its worker.

Which slices may be planned is ``local_shard.shard_slices``. Begin with ``slices``.
"""
