"""What becomes of a batch whose DataFrame handler raises."""

from typing import TYPE_CHECKING, Any, cast

import pytest
from pyspark import SparkContext, cloudpickle
from pyspark.sql import DataFrame, SparkSession

from kinesis_spout.spark.dataframe import Collector, DataFrameRunner
from kinesis_spout.spark.jobs import HandlerRaised
from kinesis_spout.spark.work import WorkResult
from shard_state import Position, SliceKind, SliceOutcome, SlicePlan

if TYPE_CHECKING:
    from kinesis_spout.spark.task import TaskSettings


class FetchedFrame:
    """Stands for what was fetched: one slice with one record. Every step of a query gives the frame itself."""

    def where(self, condition: str) -> "FetchedFrame":
        del condition
        return self

    def select(self, *columns: str) -> "FetchedFrame":
        del columns
        return self

    def collect(self) -> list[dict[str, Any]]:
        plan = SlicePlan(
            shard_id="shard",
            epoch=1,
            kind=SliceKind.READ,
            limit=1,
            position=Position.trim_horizon(),
            max_failures=1,
        )
        result = WorkResult(plan=plan, outcome=SliceOutcome(), delivered=1)
        return [{"_result": cloudpickle.dumps(result)}]  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    "raised", [ValueError("no"), SystemExit("no"), KeyboardInterrupt("no"), GeneratorExit("no")], ids=repr
)
def test_whatever_a_handler_raises_its_batch_is_halved_and_nobody_has_died(raised: BaseException) -> None:
    def handler(frame: DataFrame, collector: Collector) -> None:
        del frame, collector
        raise raised

    runner = DataFrameRunner(
        cast("SparkSession", None), cast("SparkContext", None), cast("TaskSettings", None), handler
    )
    with pytest.raises(HandlerRaised, match=f"{type(raised).__name__}: no"):
        runner._handle(cast("DataFrame", FetchedFrame()))
