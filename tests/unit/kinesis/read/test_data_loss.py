"""One rule says of a shard that is gone whether records are lost with it, at every door."""

import logging

import pytest

from kinesis_spout.kinesis.read.data_loss import lose_shard
from kinesis_spout.model.errors import DataLoss
from shard_state import Position, SequenceNumber

NOW = 1_700_000_000.0
HOUR = 3600.0
NUMBER = SequenceNumber(7)
POSITIONS = {
    "a record": (Position.after(NUMBER), True),
    "a record, and the tip was seen an hour ago": (Position.after(NUMBER).known_since(NOW - HOUR), True),
    "a time 30 hours ago": (Position.at_timestamp(NOW - 30 * HOUR), True),
    "a time an hour ago": (Position.at_timestamp(NOW - HOUR), False),
    "latest, since an hour": (Position.latest().resolved(NOW - HOUR), False),
    "latest, since two days": (Position.latest().resolved(NOW - 48 * HOUR), True),
    "the horizon, nobody knows since when": (Position.trim_horizon(), True),
    "the horizon, since an hour": (Position.trim_horizon().resolved(NOW - HOUR), False),
    "the horizon, since two days": (Position.trim_horizon().resolved(NOW - 48 * HOUR), True),
    "a child of parents that nobody saw": (Position.trim_horizon().known_since(0.0), True),
}


@pytest.mark.parametrize("what", POSITIONS)
def test_a_shard_that_is_gone_is_a_loss_if_something_promised_can_have_been_in_it(
    what: str, caplog: pytest.LogCaptureFixture
) -> None:
    position, is_lost = POSITIONS[what]
    caplog.set_level(logging.INFO)
    if is_lost:
        with pytest.raises(
            DataLoss, match=r"shard 's-1' of stream 'orders' is gone.*`fail_on_data_loss=False`"
        ):
            lose_shard("orders", "s-1", position, now=NOW, fail=True)
    else:
        assert lose_shard("orders", "s-1", position, now=NOW, fail=True) == 0
    assert lose_shard("orders", "s-1", position, now=NOW, fail=False) == is_lost
    assert caplog.records[-1].levelname == ("WARNING" if is_lost else "INFO")
