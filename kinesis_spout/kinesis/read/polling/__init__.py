"""When which shard is polled, and the one thread that sends the polls and takes their answers.

What an answer means is the getters' knowledge, in the folder above. Begin with ``steps``, then ``prefetcher``.
"""
