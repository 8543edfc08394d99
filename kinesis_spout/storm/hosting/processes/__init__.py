"""The owners of components' processes, which lease them: this process, or the host process of the machine.

The folder above has the messages to them. Begin with ``children``, on Spark with ``hosted_children``.
"""
