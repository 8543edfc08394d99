"""Takes apart aggregated records (the KPL's format) on pages that were read.

``kinesis.aggregated_record`` holds the format. Begin with ``user_columns``.
"""
