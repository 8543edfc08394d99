"""``format("kinesis")``: the entry (``data_source``), the columns, and the offsets and progress that Spark keeps.

Reading is in ``stream`` and ``batch``, the sink in ``write``; per-record outcomes are ``spark.per_record``.
Begin with ``data_source``.
"""
