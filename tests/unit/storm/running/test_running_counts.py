"""The counts of a running topology: what is of the whole run, and what of its last ten minutes."""

from kinesis_spout.storm.running.counts import ComponentCounts, RunningCounts
from kinesis_spout.testing import ManualClock


def test_counts_are_since_the_start_and_both_latencies_of_the_last_ten_minutes() -> None:
    clock = ManualClock()
    counts = RunningCounts(clock.monotonic)
    counts.add("split", ComponentCounts(executed=1, sampled=1, sampled_seconds=3.0))  # a worker that starts
    counts.add("words", ComponentCounts.of_trees(2, unfinished=1, timed_out=0, seconds=20.0))
    split, words = counts.since_start()["split"], counts.since_start()["words"]
    assert (split.latency_ms, words.complete_latency_ms) == (3_000, 20_000)

    clock.advance(540)
    counts.add("split", ComponentCounts(executed=9, sampled=2, sampled_seconds=0.003))
    counts.add("words", ComponentCounts.of_trees(11, unfinished=2, timed_out=2, seconds=0.5))
    split, words = counts.since_start()["split"], counts.since_start()["words"]
    assert (split.latency_ms, words.complete_latency_ms) == (1_001, 2_450)

    clock.advance(60)
    split, words = counts.since_start()["split"], counts.since_start()["words"]
    assert (split.latency_ms, words.complete_latency_ms) == (1.5, 500)
    assert (split.executed, words.acked, words.failed, words.timed_out) == (10, 10, 1, 2)

    clock.advance(600)
    split, words = counts.since_start()["split"], counts.since_start()["words"]
    assert (split.latency_ms, words.complete_latency_ms) == (0, 0)
    assert (split.executed, words.acked) == (10, 10)


def test_what_is_kept_does_not_grow_with_the_time() -> None:
    clock = ManualClock()
    counts = RunningCounts(clock.monotonic)
    for _ in range(1_000):
        counts.add("split", ComponentCounts(executed=1, sampled=1, sampled_seconds=0.001))
        clock.advance(7)
    assert len(counts._parts) <= 20
    assert counts.since_start()["split"].executed == 1_000


def test_what_is_given_is_a_copy() -> None:
    counts = RunningCounts(ManualClock().monotonic)
    counts.add("split", ComponentCounts(executed=1))
    given = counts.since_start()["split"]
    given.report("depth", 1)
    given.executed = 7
    assert (counts.since_start()["split"].executed, counts.since_start()["split"].metrics) == (1, {})
