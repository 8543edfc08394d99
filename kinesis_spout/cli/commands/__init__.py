"""The commands of ``kinesis-spout``: their options, and what they print of what ``operations`` gives.

What several share is in the folder above; runs on Spark are in ``runs``.
"""
