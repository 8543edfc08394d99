"""Operations on an application or a stream, as values and documents: no printing, no options.

The command line and the web page use it. What is stored and read is in ``zookeeper`` and ``kinesis``. Begin
with ``world``.
"""
