"""``make demo-topology``: Storm's word count on Spark, with failures and kills on purpose, and its counts checked.

The stage, the processes and the display are those of ``examples.demo``. Begin with ``run``, then ``conductor``.
"""
