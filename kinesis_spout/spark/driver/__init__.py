"""The driver's side of the micro-batch doors: what is polled, planned, launched, settled and reported.

``tasks`` has the work of a task with its slices. Begin with ``engine``.
"""
