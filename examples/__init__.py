"""Whole programs on kinesis-spout, not part of the package. Begin with ``demo``: ``make demo`` runs it."""
