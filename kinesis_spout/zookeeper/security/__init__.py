"""How a session proves who it is, whom it trusts, and who may use the nodes that it makes.

Not how the connection is kept: that is ``session``. Begin with ``credentials``.
"""
