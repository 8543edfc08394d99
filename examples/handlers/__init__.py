"""The sample handlers that the documents show, to begin a handler of yours with.

What runs them is not here: the README and docs/how-to/consume.md say how. Begin with ``bill.py``.
"""
