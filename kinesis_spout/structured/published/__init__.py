"""The progress of a streaming query in ZooKeeper, in the place of an application.

Spark's own checkpoint stays authoritative. Begin with ``published_progress``.
"""
