"""The web page: an application in a browser, to watch it and to steer it. ``kinesis-spout web`` serves it.

Here are requests, forms, HTML and drawings. ``operations`` has the content and the changes. Begin with ``app``.
"""
