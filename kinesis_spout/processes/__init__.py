"""Python processes: which Python Spark starts, its log and memory, messages between them, and signals to stop.

``message_channel`` carries the messages of pages, long tasks and hosted components, which define what they say.
"""
