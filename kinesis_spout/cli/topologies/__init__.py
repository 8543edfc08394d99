"""``kinesis-spout topology``: explains, draws and runs topologies.

What they have in common with ``run`` is in ``kinesis_spout.cli.runs``. Begin with ``commands``.
"""
