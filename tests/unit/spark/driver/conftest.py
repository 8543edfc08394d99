"""The micro-batch engine on one shard, for a test."""

from collections.abc import Iterator

import pytest

from tests.unit.spark.driver.world import EngineWorld


@pytest.fixture
def world() -> Iterator[EngineWorld]:
    world = EngineWorld()
    yield world
    world.close()
