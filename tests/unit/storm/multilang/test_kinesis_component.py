from typing import Any

from kinesis_spout.settings import SpoutConfig
from kinesis_spout.storm.multilang.kinesis_component import KinesisSpoutComponent


class Idle:
    """A spout that has no record."""

    def next_tuple(self) -> None:
        """Give none."""

    def activate(self) -> None:
        """Begin."""

    def deactivate(self) -> None:
        """Pause."""

    def ack(self, message_id: str) -> bool:
        return message_id == "known"


def configured(_: Any) -> SpoutConfig:
    raise AssertionError("no test gets that far")


def test_a_spout_without_a_record_rests_longer_and_longer_until_there_is_something_to_do() -> None:
    rests: list[float] = []
    component = KinesisSpoutComponent(configured, sleep=rests.append)
    component._spout = Idle()  # type: ignore[assignment]  # stands for a spout
    for _ in range(7):
        component.next_tuple()
    assert rests == [0.001, 0.002, 0.004, 0.008, 0.016, 0.016, 0.016]
    component.ack("known")
    component.next_tuple()
    component.deactivate()
    component.next_tuple()
    assert rests[7:] == [0.001, 0.002]
