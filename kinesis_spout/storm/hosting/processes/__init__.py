"""Who owns the processes of components, and leases them: this process, or the host process of the machine.

What is said to them is in the folder above. Begin with ``children``, on Spark with ``hosted_children``.
"""
