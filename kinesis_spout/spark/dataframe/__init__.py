"""The DataFrame door: executors cache the rows of a micro-batch, and the driver gives them out as a DataFrame.

Begin with ``dataframe_runner``, then ``cached_rows``.
"""
