"""Enhanced fan-out: Kinesis pushes a shard's records over a subscription (SubscribeToShard).

The registered consumer, the call, its events, the I/O thread, the getter. The folder above decodes
records. Begin with ``pushed_getter``, then ``subscription_reader``.
"""
