"""What concerns the Python workers that Spark starts: which Python, how much memory, how their log is printed.

What they do is ``spark.tasks``' and ``structured``'s. Begin anywhere: the files do not know each other.
"""
