"""What is looked at again and again while it goes on: an application, its members' own words, redrives under way.

Readings are shared by all who look, and made on threads. Begin with ``observation``.
"""
