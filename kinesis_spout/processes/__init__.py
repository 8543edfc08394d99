"""Python processes: which Python Spark starts, its log, its memory, connections, and signals that ask for a stop.

What is sent over a connection is in ``structured.pages`` and ``storm.hosting``. The files do not know each
other.
"""
