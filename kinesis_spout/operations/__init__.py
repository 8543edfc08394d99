"""Operations on an application or a stream, as values and documents: no printing, no options.

The command line and the web page use it. ``zookeeper`` and ``kinesis`` store and read. Begin with ``world``.
"""
