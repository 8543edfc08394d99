"""What failures at a rate cost a topology with keyed state, beside the same topology without failures.

Each row prints how long it took, how many deliveries there were, and how many times as long that is; -s shows it.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.support.spark.micro_batch_world import MakeWorld, MicroBatchWorld
from tests.support.storm.failing_topology import counted, failing_word_count, sentences

pytestmark = [pytest.mark.spark, pytest.mark.zookeeper, pytest.mark.endpoint, pytest.mark.timeout(900)]

SENTENCES = 20_000
PATIENCE_SECONDS = 400.0
AT_LEAST_ONCE = {"state_guarantee": "at_least_once"}
ROWS: Mapping[str, tuple[dict[str, Any], float]] = {
    "half": ({"half_rate": 0.05}, 8.0),
    "sink": ({"sink_rate": 0.05}, 8.0),
    "rare": ({"sink_rate": 0.001}, 1.5),
    "half, at least once": ({"half_rate": 0.05, **AT_LEAST_ONCE}, 3.0),
    "sink, at least once": ({"sink_rate": 0.05, **AT_LEAST_ONCE}, 3.0),
}
"""What fails, and how many times as long as without failures it may take."""
TAIL_SECONDS = 25.0
"""On top: with 5 % of the sink's calls a third of the sentences fails each time, so that a few need a dozen
deliveries, each with its back-off and its job, however fast all others were."""


def took_seconds(
    spark: SparkSession, world: MicroBatchWorld, folder: Path, put: list[str], name: str, **faults: Any
) -> float:
    """Count all sentences anew, and check the counts."""
    app = name.replace(",", "").replace(" ", "-")
    settings = world.settings | {"app": app, "retry_limit": 100, "retry_backoff_cap_seconds": 0.2}
    topology = failing_word_count(settings, state=str(folder / app), **faults)
    began = monotonic()
    with topology.run(spark) as query:
        counters = query.spouts["sentences"].counters
        while counters.acked < len(put):
            assert query.isActive
            assert monotonic() - began < PATIENCE_SECONDS, f"{name}: only {counters.acked} acked"
            query.awaitTermination(0.05)
            counters = query.spouts["sentences"].counters
        seconds = monotonic() - began
    sys.stdout.write(f"\n{name}: {seconds:.1f} s, {counters.delivered} deliveries")
    words = topology.read_state("count")
    if "state_guarantee" in faults:
        assert all(words[word] >= count for word, count in counted(put).items())
    else:
        assert words == counted(put)
    assert world.dead_letters() == []
    return seconds


def test_failures_at_a_rate_cost_a_few_times_as_much_and_not_the_progress(
    spark: SparkSession, make_world: MakeWorld, tmp_path: Path
) -> None:
    world = make_world(shards=4, many_records=True)
    put = sentences(SENTENCES)
    world.put(put)

    took_seconds(spark, world, tmp_path, put, "while workers start")
    without = took_seconds(spark, world, tmp_path, put, "without failures")
    for name, (faults, most_times) in ROWS.items():
        seconds = took_seconds(spark, world, tmp_path, put, name, **faults)
        if seconds > most_times * without + TAIL_SECONDS:
            # The machine may have become busier since: both again, one right after the other.
            without = took_seconds(spark, world, tmp_path, put, f"without failures, for {name}")
            seconds = took_seconds(spark, world, tmp_path, put, f"{name}, again", **faults)
        sys.stdout.write(f", {seconds / without:.2f} times")
        assert seconds <= most_times * without + TAIL_SECONDS, name
