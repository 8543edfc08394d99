"""Calls of Kinesis over sockets of our own: ``sigv4`` signs, ``http`` is bytes, ``connections`` are kept.

``calls`` joins them, and is where to begin reading. Credentials, endpoints and errors are botocore's; calls
through a proxy are botocore's altogether.
"""
