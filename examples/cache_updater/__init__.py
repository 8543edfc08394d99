"""A cache that follows a shop's products without being flooded: ``python -m examples.cache_updater``.

``updater`` reads access events, coalesces those of a product, and keeps to a rate for each. ``__main__`` makes the
traffic and checks the cache. Begin with ``updater``.
"""
