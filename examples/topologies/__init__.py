"""Topologies to begin with: each one is what a user would write, in one module."""
