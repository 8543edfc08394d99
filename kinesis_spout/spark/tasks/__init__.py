"""The executors' side of the micro-batch doors: fetch a slice, call the handler, return the outcome.

When a slice goes out, and what its outcome means, is ``driver``'s. Begin with ``task``; ``jobs`` runs it.
"""
