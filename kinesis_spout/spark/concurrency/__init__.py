"""Several records at a time: by threads, or by one event loop where the handler is a coroutine function.

``tasks`` decides what their outcomes mean. Begin with ``record_schedule``.
"""
