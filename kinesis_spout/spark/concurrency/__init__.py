"""Several records at a time: by threads, or by one event loop where the handler is a coroutine function.

What their outcomes mean is for ``tasks`` to say. Begin with ``record_run``.
"""
