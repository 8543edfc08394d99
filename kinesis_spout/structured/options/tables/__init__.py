"""Every option as a row: spellings, where it applies, what it takes, what it means.

How a given text is matched to a row is the folder above's. Begin with ``specs``, then ``table``.
"""
