"""Programs and handlers on kinesis-spout, not part of the package.

``make demo`` runs ``demo``; ``handlers`` has the sample handlers of the documents. Four small programs check
themselves: ``effectively_once``, ``billing_collector``, ``cache_updater``, ``work_orders``. Begin with
``handlers/bill.py``.
"""
