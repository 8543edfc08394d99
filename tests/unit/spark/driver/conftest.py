"""The micro-batch engine on one shard, for a test."""

from collections.abc import Iterator

import pytest

from tests.unit.spark.driver.world import EngineWorld


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Iterator[EngineWorld]:
    """Make one with a stream of one shard, or of as many as the module's SHARDS."""
    world = EngineWorld(shards=getattr(request.module, "SHARDS", 1))
    yield world
    world.close()
