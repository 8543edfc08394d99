"""The commands of ``kinesis-spout``: their options, and how they print what ``operations`` gives.

What several share is in the folder above; runs on Spark are in ``runs``.
"""
