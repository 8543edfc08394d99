"""Several spouts of one topology run together, and end together. Their jobs run in this process."""

import threading

import pytest

from kinesis_spout.storm import TopologyBuilder
from kinesis_spout.storm.spark.topology_query import TopologyQuery
from tests.support.spark.spark_here import SparkHere
from tests.support.storm.scripted_topology import Declared, Scripted, acks
from tests.support.waiting import wait_until


class Idle(Declared):
    """Has nothing to emit; notes that it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = threading.Event()

    def next_tuple(self) -> None:
        """Emit nothing."""

    def close(self) -> None:
        self.closed.set()


class Breaks(Idle):
    """Raises when it is asked for a tuple."""

    def next_tuple(self) -> None:
        raise ValueError("broken")


def started(*spouts: Idle) -> TopologyQuery:
    builder = TopologyBuilder()
    sink = builder.set_bolt("sink", Scripted(acks))
    for number, spout in enumerate(spouts):
        builder.set_spout(f"spout {number}", spout)
        sink.shuffle_grouping(f"spout {number}")
    return builder.build("together").run(SparkHere().session)


def test_when_a_spout_breaks_the_others_end_too_and_the_query_tells_why() -> None:
    idle = Idle()
    query = started(idle, Breaks())

    assert idle.closed.wait(120), "it would go on beside the next run of the topology"
    wait_until(lambda: not query.own_spouts["spout 0"].isActive, "the spout that did not break has ended")
    assert not query.isActive
    assert query.status["message"] == "Terminated with exception: ValueError: broken"
    for _ in range(2):
        with pytest.raises(ValueError, match="broken"):
            query.awaitTermination(10)
    query.stop()
    error = query.exception()
    assert isinstance(error, ValueError)
    assert error.__notes__ == ["raised by the spout 'spout 1'"]


def test_spouts_that_do_not_break_run_until_they_are_stopped() -> None:
    first, second = Idle(), Idle()
    query = started(first, second)

    assert not query.awaitTermination(0.5)
    assert query.isActive
    query.stop()
    assert first.closed.is_set()
    assert second.closed.is_set()
    assert query.awaitTermination(10)
