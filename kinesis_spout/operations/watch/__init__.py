"""Repeated looks at what goes on: applications, their members' own words, redrives under way.

Readings are shared by all who look, and made on threads. Begin with ``observation``.
"""
