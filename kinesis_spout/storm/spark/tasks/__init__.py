"""One Spark job for a micro-batch, and what its tasks do: the first stage, later stages, ackers.

When a job starts, and what its result means for the spout, is in the folder above. Begin with ``job``.
"""
