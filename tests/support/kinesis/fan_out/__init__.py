"""A fan-out service for tests, over any stream that GetRecords can read: emulators lack most of it.

Begin with ``service``.
"""
