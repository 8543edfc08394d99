"""The ZooKeeper in memory that users' tests break: a fault that hits nothing is an error of the test."""

import pytest

from kinesis_spout.testing import InMemoryZooKeeper


def test_an_owner_that_does_not_exist_cannot_be_removed() -> None:
    with pytest.raises(KeyError, match="shardId-0"):
        InMemoryZooKeeper().remove_owner("shardId-0")
