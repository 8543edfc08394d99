"""The plain-Python door on one shard, for a test."""

from collections.abc import Iterator

import pytest

from tests.support.consumer.world import World


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()
