"""The files of a spool: whose they are, what is in them, and whether they are whole.

What waits for a write, and what is confirmed, is the spool's own business. Begin with ``folder``, then
``spool_file``.
"""
