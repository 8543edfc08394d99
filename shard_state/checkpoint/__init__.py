"""The stored form of a shard's progress: the base, and what is finished beyond it.

The values it is made of are the folder above's; who writes it is ``local_shard``'s. Begin with ``checkpoint``.
"""
