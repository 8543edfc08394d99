import pytest

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.zookeeper import Paths


def test_everything_lives_below_root_app_and_stream() -> None:
    paths = Paths(app="billing", stream="orders")
    assert paths.base == "/kinesis_spout/billing/orders"
    assert paths.shard("shardId-1") == "/kinesis_spout/billing/orders/shards/shardId-1"
    assert paths.owner("shardId-1") == "/kinesis_spout/billing/orders/owners/shardId-1"
    assert paths.member("one") == "/kinesis_spout/billing/orders/members/one"
    assert paths.leader == "/kinesis_spout/billing/orders/leader"
    assert paths.assignment == "/kinesis_spout/billing/orders/assignment"


@pytest.mark.parametrize("name", ["", "a/b", "/", ".", "..", "a\nb", "a\x00", "\ud800", "x" * 256])
@pytest.mark.parametrize("field", ["root", "app", "stream"])
def test_a_name_that_zookeeper_would_refuse_is_refused_by_field(field: str, name: str) -> None:
    names = {"root": "root", "app": "app", "stream": "stream"} | {field: name}
    with pytest.raises(InvalidConfig, match=f"^{field}="):
        Paths(**names)


def test_zookeepers_own_root_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="own place"):
        Paths(root="zookeeper", app="billing", stream="orders")


@pytest.mark.parametrize("name", ["billing", "Bill.ing-2_3", "a b", "рахунки"])
def test_ordinary_names_are_taken(name: str) -> None:
    assert Paths(app=name, stream="orders").base == f"/kinesis_spout/{name}/orders"
