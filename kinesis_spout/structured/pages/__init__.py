"""Pages of records on their way from the reader to the tasks.

``stream`` decides what is fetched, and when. Begin with ``page_server``.
"""
