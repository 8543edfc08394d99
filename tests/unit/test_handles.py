"""The handles of all doors have the same members, which mean the same: names, kinds and signatures."""

import inspect
from typing import Any

import pytest

from kinesis_spout import KinesisSpout
from kinesis_spout.consumer.handle import Handle
from kinesis_spout.plain.record_spout import RecordSpout
from kinesis_spout.spark.driver.query import SpoutQuery
from kinesis_spout.spark.driver.running_query import RunningQuery
from kinesis_spout.storm.spark.own_spout import OwnSpoutQuery
from kinesis_spout.storm.spark.topology_query import TopologyQuery
from kinesis_spout.testing import SteppedSpout

QUERIES = (SpoutQuery, OwnSpoutQuery, TopologyQuery)
OF_PLAIN_PYTHON = {
    "activate", "deactivate", "open", "close",
    "next_tuple", "ack", "fail", "record", "rate_wait_seconds", "is_done", "trace_span",
}  # fmt: skip
OWN: dict[type, set[str]] = {
    RecordSpout: OF_PLAIN_PYTHON,
    SpoutQuery: {"streams"},
    OwnSpoutQuery: {"start", "counts"},
    TopologyQuery: {"watch", "spouts", "own_spouts", "components", "mermaid"},
}
"""What each adds to what all handles, or all queries, do."""


def members(handle: type) -> dict[str, str]:
    """Give the public members of a class, with what they take and give."""
    return {
        name: _shape(inspect.getattr_static(handle, name)) for name in dir(handle) if not name.startswith("_")
    }


def _shape(member: Any) -> str:
    if isinstance(member, property):
        return f"property{inspect.signature(member.fget)}"  # type: ignore[arg-type] # every one can be read
    return f"method{inspect.signature(member)}" if callable(member) else "value"


def test_there_is_no_handle_that_is_not_compared_here() -> None:
    subclasses, found = [Handle], set[type]()
    while subclasses:
        below = [
            each for each in subclasses.pop().__subclasses__() if not each.__module__.startswith("tests.")
        ]
        subclasses += below
        found.update(below)
    assert found == {*OWN, RunningQuery, KinesisSpout, SteppedSpout}


@pytest.mark.parametrize("handle", OWN)
def test_a_handle_has_what_all_have_and_only_its_own_besides(handle: type) -> None:
    shared = members(RunningQuery if handle in QUERIES else Handle)
    has = members(handle)
    assert {name: has.get(name) for name in shared} == shared
    assert has.keys() - shared.keys() == OWN[handle]


def test_what_plain_python_and_spark_both_add_is_the_same() -> None:
    assert members(RecordSpout)["is_done"] == members(RunningQuery)["is_done"]
