from pathlib import Path

import pytest

from kinesis_spout.dead_letters.json_lines import JsonLinesSink
from kinesis_spout.kinesis import KinesisClientSettings
from kinesis_spout.model.errors import DeadLetterError, InvalidConfig
from kinesis_spout.model.record import DeadLetter
from kinesis_spout.spark.per_record.on_demand_sink import OnDemandSink
from kinesis_spout.testing import ManualClock

LETTER = DeadLetter(
    application="billing",
    stream="orders",
    shard_id="shard",
    sequence_number="1",
    partition_key=None,
    arrival_timestamp=None,
    data=b"data",
    attempts=1,
    error="ValueError: bad",
    reason="exhausted",
    died_at=1.0,
)


def sink(url: str, clock: ManualClock | None = None) -> OnDemandSink:
    return OnDemandSink(url=url, client=KinesisClientSettings(), clock=clock or ManualClock())


def test_letters_are_in_the_sink_when_write_returns(tmp_path: Path) -> None:
    sink(f"file://{tmp_path}/dead").write([LETTER])

    assert list(JsonLinesSink(tmp_path / "dead").read()) == [LETTER]


def test_making_a_place_leaves_nothing_behind(tmp_path: Path) -> None:
    sink(str(tmp_path / "dead")).check_writable()

    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_to_is_noticed_before_any_work_is_done(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DeadLetterError, match="expected to be able to write below"):
        sink(str(tmp_path / "file")).check_writable()


@pytest.mark.parametrize("url", ["", "kinesis://", "file://host/dead", "abfs://container/dead"])
def test_what_cannot_be_a_place_is_refused(url: str) -> None:
    with pytest.raises(InvalidConfig, match="dead_letters: expected"):
        sink(url)


def test_a_write_that_fails_is_tried_again_until_the_place_is_there(tmp_path: Path) -> None:
    blocked = tmp_path / "dead"
    blocked.touch()

    class Mended(ManualClock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            blocked.unlink(missing_ok=True)

    sink(str(blocked), Mended()).write([LETTER])

    assert list(JsonLinesSink(blocked).read()) == [LETTER]


def test_a_write_that_goes_on_failing_is_an_error_after_several_tries(tmp_path: Path) -> None:
    blocked = tmp_path / "dead"
    blocked.touch()
    clock = ManualClock()

    with pytest.raises(DeadLetterError):
        sink(str(blocked), clock).write([LETTER])

    assert 6 < clock.monotonic() <= 7.5
