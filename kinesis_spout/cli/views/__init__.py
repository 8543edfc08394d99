"""What can be said of shards and members without owning or being one.

How it is printed is ``output``, in the folder above. Begin with ``shard_view``.
"""
