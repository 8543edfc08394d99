"""The command line: what all commands share. The commands themselves are in ``commands``.

Begin with ``app``.
"""
