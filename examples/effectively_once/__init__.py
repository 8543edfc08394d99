"""The two honest ways to let each record take effect once: ``python -m examples.effectively_once``.

``sqlite_progress`` is for copying: effect and progress in one transaction of a database. ``payments`` is a
consumer in each way, which ``__main__`` kills again and again. Begin with ``payments``.
"""
