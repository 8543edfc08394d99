"""One file for each command of ``kinesis-spout``, and what only one command needs.

Settings, output and errors are the folder above's.
"""
