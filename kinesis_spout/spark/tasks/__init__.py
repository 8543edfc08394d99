"""The executors' side of the micro-batch doors: fetch a slice, call the handler, return the outcome.

``driver`` decides when a slice goes out, and what its outcome means. Begin with ``task``; ``jobs`` runs it.
"""
