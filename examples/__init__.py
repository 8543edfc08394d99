"""Programs and handlers on kinesis-spout, not part of the package.

``make demo`` runs ``demo``; ``handlers`` has the sample handlers of the documents.
Begin with ``handlers/bill.py``.
"""
