"""Calls of Kinesis over sockets of our own.

``sigv4`` signs, ``http`` is bytes, ``ways`` open ``connections``, which are kept. ``calls`` joins them, and is
where to begin reading. Endpoints and errors are botocore's, and so are the sources of ``credentials``.
"""
