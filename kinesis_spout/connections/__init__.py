"""Connections between processes and machines: both ends prove that they know a key, then send messages.

What is sent is not here: see ``structured.pages`` and ``topology.homes``. Begin with ``handshake``.
"""
