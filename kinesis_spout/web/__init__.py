"""The web page: an application in a browser, to watch it and to steer it. ``kinesis-spout web`` serves it.

Here are requests, forms, HTML and drawings. What is shown and changed is in ``operations``. Begin with ``app``.
"""
