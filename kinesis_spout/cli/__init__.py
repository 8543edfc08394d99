"""The command line: what all commands share. The commands are in ``commands``. Begin with ``app``."""
