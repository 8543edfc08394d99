"""One file for each command of ``kinesis-spout``, and what only one command needs; those about one thing in a folder.

Settings, output and errors are the folder above's.
"""
