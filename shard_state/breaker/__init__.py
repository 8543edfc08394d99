"""The circuit breaker: no records are handed out while practically every one fails.

The pause that an operator makes is ``owned_shards``. Begin with ``circuit_breaker``.
"""
