"""Python processes other than the user's: which Python Spark starts, its log, its memory, and connections.

What is sent over a connection is in ``structured.pages`` and ``storm.hosting``. The files do not know each
other.
"""
