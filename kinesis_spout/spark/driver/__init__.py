"""The driver's side of the micro-batch doors: what is polled, planned, launched, settled and reported.

What a task does with its slices is in ``tasks``. Begin with ``engine``.
"""
