"""Enhanced fan-out: shards whose records Kinesis pushes over a subscription (SubscribeToShard).

Here: the registered consumer, the call, its event stream, the I/O thread, the getter. What a reply's records
are made into is the folder above's. Begin with ``getter``, then ``subscription_reader``.
"""
