"""The micro-batch engine, for a test: on one shard, or on as many as the module's ``SHARDS`` says."""

from collections.abc import Iterator

import pytest

from tests.unit.spark.driver.world import EngineWorld


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Iterator[EngineWorld]:
    made = EngineWorld(shards=getattr(request.module, "SHARDS", 1))
    yield made
    made.close()


@pytest.fixture
def two_shards() -> Iterator[EngineWorld]:
    made = EngineWorld(shards=2)
    yield made
    made.close()
