"""What becomes of a batch whose DataFrame handler raises."""

from typing import TYPE_CHECKING, cast

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from kinesis_spout.model.errors import HandlerKilledWorker
from kinesis_spout.spark.dataframe.dataframe_runner import Collector, handled
from kinesis_spout.spark.tasks.jobs import HandlerRaised
from kinesis_spout.spark.tasks.work import WorkResult
from shard_state import Position, SliceKind, SliceOutcome, SlicePlan

if TYPE_CHECKING:
    from kinesis_spout.spark.dataframe.cached_rows import CachedRows


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
        handled(handler, cast("CachedRows", OneRow()))


class JavaException:
    """As Py4J hands it over."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._target_id = "o1"
        self._gateway_client = None

    def toString(self) -> str:  # noqa: N802 - as Java spells it
        return self._text


BLOCK_GONE = "[CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND] Checkpoint block rdd_350_0 not found!"
ABORTED = f"org.apache.spark.SparkException: Job aborted due to stage failure: {BLOCK_GONE}"


@pytest.mark.parametrize(
    "raised",
    [Py4JJavaError("an action failed: ", JavaException(ABORTED)), PySparkException(BLOCK_GONE)],
    ids=lambda raised: type(raised).__name__,
)
def test_rows_that_are_lost_with_an_executor_are_no_fault_of_the_handler(raised: Exception) -> None:
    def handler(frame: DataFrame, collector: Collector) -> None:
        del frame, collector
        raise raised

    with pytest.raises(HandlerKilledWorker, match="executor was lost") as death:
        handled(handler, cast("CachedRows", OneRow()))
    assert not isinstance(death.value, HandlerRaised)


def test_a_handler_that_only_speaks_of_lost_rows_has_raised() -> None:
    def handler(frame: DataFrame, collector: Collector) -> None:
        del frame, collector
        raise ValueError(BLOCK_GONE)

    with pytest.raises(HandlerRaised):
        handled(handler, cast("CachedRows", OneRow()))
