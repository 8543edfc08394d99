"""GetRecords itself: the call, with little CPU, and the body of its reply in one piece.

What is made of the reply, and when the next call comes, is the folder above's. Begin with ``get_records``.
"""
