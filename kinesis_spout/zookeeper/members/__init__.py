"""Who is there: the members of an application, who leads, who owns what, and what is paused.

What they have done is ``progress``. Begin with ``coordinator``, then ``group``.
"""
