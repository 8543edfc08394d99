"""Who owns the processes of components, and leases them: this process, or the one host process of the machine.

What is said to them is not here but in the room above. Begin with ``children``, on Spark with ``hosted_children``.
"""
