"""Which shards this member owns: what the leader assigns, what this member wants, and how it takes and lets go.

What is read of them, and stored, is the folder above's. Begin with ``sharing``.
"""
