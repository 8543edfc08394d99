"""The commands for dead letters: which there are, and how they are sent again.

Where they are kept is ``kinesis_spout.dead_letters``. Begin with ``dead_letters``.
"""
