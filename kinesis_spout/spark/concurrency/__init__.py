"""Several records at a time: by threads, or by one event loop where the handler is a coroutine function.

What their outcomes mean is the caller's: ``tasks`` and ``record_outcomes``. Begin with ``record_run``.
"""
