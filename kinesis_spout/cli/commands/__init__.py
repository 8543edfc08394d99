"""One file for each command of ``kinesis-spout``, and what only one command needs; some have a folder together.

Settings, output and errors are the folder above's.
"""
