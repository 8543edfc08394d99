"""What ``stand_for`` takes: where ZooKeeper is and who we are there, and nothing about streams."""

from typing import Any

import pytest

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.recipes.leader import stand_for


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"zookeeper": "zk1"}, "zookeeper: expected 'embedded', .* got 'zk1'"),
        ({"zookeeper": "zk1:2181", "zookeeper_root": "a/b"}, "zookeeper_root: expected"),
        ({"session_timeout_seconds": 0.1}, "session_timeout_seconds: expected"),
        ({"zookeeper": "zk1:2181", "zookeeper_user": "bill"}, "zookeeper_user: expected zookeeper_password"),
        ({"zookeeper_tls": True}, "zookeeper_tls: expected none with the embedded ZooKeeper"),
        ({"stream": "orders"}, "unknown keyword argument 'stream'"),
        ({"zookeper": "zk1:2181"}, "unknown keyword argument 'zookeper': did you mean zookeeper"),
    ],
)
def test_what_it_cannot_use_is_refused_before_anything_is_started(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidConfig, match=message):
        stand_for("nightly-bill", **settings)


def test_a_name_that_is_no_place_in_zookeeper_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="nightly/bill"):
        stand_for("nightly/bill")
