"""The slices of a micro-batch, as values, and how a slice is halved until it holds only what kills its worker.

``local_shard.shard_slices`` says which slices may be planned. Begin with ``slices``.
"""
