"""The host's side of components in other languages: their processes, and the bolt and spout that use them.

The protocol is in ``multilang``; who owns the processes, in ``processes``. Begin with ``shell_bolt``.
"""
