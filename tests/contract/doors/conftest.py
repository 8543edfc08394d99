"""Gives the tests of this folder each door in turn."""

from tests.support.consumer.doors import doors, world

__all__ = ["doors", "world"]
