"""Several streams under one application: which they are, how each is opened and ended, what they share.

Each has a consumer of its own, which knows nothing of the others. Begin with ``stream_set``.
"""
