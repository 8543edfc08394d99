"""The commands of ``kinesis-spout``: their options, and how they print what ``operations`` gives.

The folder above has the parts that several share, ``runs`` the runs on Spark.
"""
