"""The owners of components' processes, which lease them: this process, or the host process of the machine.

What is said to them is in the folder above. Begin with ``children``, on Spark with ``hosted_children``.
"""
