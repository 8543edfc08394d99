"""The driver's side of the micro-batch doors: what is polled, planned, launched, settled and told.

What a task does with its slices is ``tasks``. Begin with ``engine``.
"""
