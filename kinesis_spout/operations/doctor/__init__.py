"""Whether all that a consumer or a producer needs is there: what an issue report should say.

``examination`` asks everything. ``this_machine`` and ``services`` have the questions, ``finding`` the answers.
"""
