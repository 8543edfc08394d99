"""The stored progress of an application: how it begins, what is committed, and what operators do with it.

Whose the shards are is ``ownerships``, in the folder above; the nodes are ``tree``'s. Begin with ``store``.
"""
