"""The nodes of an application: their paths, how they are made, read, and written many at a time.

What they hold is the folder above's. Begin with ``paths``.
"""
