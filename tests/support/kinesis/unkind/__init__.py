"""A Kinesis endpoint in a process of its own, which answers as AWS documents or, if told to, as users saw it do.

``behaviours`` is the table of what a test switches on, ``account`` the service without its faults, ``server`` the
bytes. A test begins with ``endpoint``.
"""
