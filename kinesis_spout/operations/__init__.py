"""What an operator does with an application or a stream, as values and documents: no printing, no options.

The command line stands on it, and so may anything else that shows or steers an application. What is stored and
read is ``kinesis_spout.zookeeper``'s and ``kinesis_spout.kinesis``'s. Begin with ``world``.
"""
