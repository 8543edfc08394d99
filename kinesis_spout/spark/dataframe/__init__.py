"""The DataFrame door: the rows of a micro-batch are kept on the executors, and the user gets them as a DataFrame.

Doors that call a handler inside the tasks are in the folder above. Begin with ``dataframe``, then ``kept_rows``.
"""
