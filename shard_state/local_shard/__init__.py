"""One shard that this consumer owns: what is read, out, waiting, and to be stored.

The ack map, the retries and the slices' values are folders next to this one. Begin with ``local_shard_state``.
"""
