"""One stage in one process, tuple by tuple: its bolts, their collectors, and what leaves it.

What travels between stages, and how trees are decided, is the folder above's. Begin with ``stage_run``.
"""
