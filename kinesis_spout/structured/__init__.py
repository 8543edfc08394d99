"""``format("kinesis")``: the entry (``data_source``), the columns, offsets and progress.

Reading is in ``stream`` and ``batch_reader``, the sink in ``write``, outcomes of records in ``spark``.
"""
