"""Pages of records on their way: from the processes that fetch, to the reader, to the tasks.

What is fetched, and when, is ``stream``'s. Begin with ``page_server``.
"""
