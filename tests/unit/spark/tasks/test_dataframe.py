"""What becomes of a batch whose DataFrame handler raises."""

from typing import TYPE_CHECKING, cast

import pytest
from pyspark.sql import DataFrame

from kinesis_spout.spark.tasks.dataframe import Collector, handled
from kinesis_spout.spark.tasks.jobs import HandlerRaised
from kinesis_spout.spark.tasks.work import WorkResult
from shard_state import Position, SliceKind, SliceOutcome, SlicePlan

if TYPE_CHECKING:
    from kinesis_spout.spark.tasks.kept_rows import KeptRows


class OneRow:
    """Stands for what was fetched: one slice with one record."""

    @property
    def results(self) -> list[WorkResult]:
        plan = SlicePlan(
            shard_id="shard",
            epoch=1,
            kind=SliceKind.READ,
            limit=1,
            position=Position.trim_horizon(),
            max_failures=1,
        )
        return [WorkResult(plan=plan, outcome=SliceOutcome(), delivered=1)]

    def frame(self) -> None:
        return None


@pytest.mark.parametrize(
    "raised", [ValueError("no"), SystemExit("no"), KeyboardInterrupt("no"), GeneratorExit("no")], ids=repr
)
def test_whatever_a_handler_raises_its_batch_is_halved_and_nobody_has_died(raised: BaseException) -> None:
    def handler(frame: DataFrame, collector: Collector) -> None:
        del frame, collector
        raise raised

    with pytest.raises(HandlerRaised, match=f"{type(raised).__name__}: no"):
        handled(handler, cast("KeptRows", OneRow()))
