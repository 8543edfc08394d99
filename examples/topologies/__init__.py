"""The sample topologies that the documents show, to begin one of yours with.

What runs them is not here: docs/how-to/topologies.md says how. Begin with ``word_count.py``.
"""
