"""The DataFrame door: executors cache a micro-batch's rows; the driver hands them out as a DataFrame.

Begin with ``dataframe_runner``, then ``cached_rows``.
"""
