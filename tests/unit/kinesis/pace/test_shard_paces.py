from kinesis_spout.kinesis.pace import ApplicationBudget, ReadPace, ShardPaces
from kinesis_spout.testing import ManualClock

_MEGABYTE = 1_000_000


def _paces(clock: ManualClock, limit: int | None = _MEGABYTE) -> ShardPaces:
    return ShardPaces(clock, budget=ApplicationBudget(limit), jitter=lambda: 0.0)


def test_everybody_who_reads_a_shard_in_a_process_has_the_same_pacing() -> None:
    clock = ManualClock()
    paces = _paces(clock)

    assert paces.of("s-0") is paces.of("s-0")
    assert paces.of("s-0") is not paces.of("s-1")


def test_the_budget_is_divided_by_the_shards_that_are_assigned_to_all_members() -> None:
    paces = _paces(ManualClock())
    paces.assigned(frozenset({"s-0", "s-1"}), 8)

    paces.of("s-0").succeeded(0.0, _MEGABYTE)

    assert paces.of("s-0").ready_at == 4.0


def test_the_parts_of_all_members_are_the_budget() -> None:
    ours = [frozenset({f"s-{number}" for number in range(*span)}) for span in ((0, 3), (3, 4), (4, 10))]
    rates = []
    for shards in ours:
        paces = _paces(ManualClock())
        paces.assigned(shards, 10)
        rates.append(paces.elsewhere.bytes_per_second)

    assert sum(rates) == _MEGABYTE


def test_an_executor_never_reads_one_shard_faster_than_the_member_may_read_all() -> None:
    paces = ShardPaces(ManualClock(), pace=ReadPace(interval_seconds=0.5), budget=ApplicationBudget(100_000))
    paces.assigned(frozenset({"s-0"}), 4)

    assert paces.elsewhere == ReadPace(interval_seconds=0.5, bytes_per_second=25_000)


def test_a_shard_that_went_to_another_member_is_forgotten_and_one_that_stayed_is_not() -> None:
    clock = ManualClock()
    paces = _paces(clock)
    paces.assigned(frozenset({"s-0", "s-1"}), 2)
    gone, stayed = paces.of("s-0"), paces.of("s-1")

    paces.assigned(frozenset({"s-1"}), 2)

    assert paces.of("s-0") is not gone
    assert paces.of("s-1") is stayed


def test_executors_get_the_time_until_the_next_read_whatever_the_wall_clock_says() -> None:
    clock = ManualClock()
    clock.advance(5.0)
    paces = _paces(clock, limit=None)
    paces.of("s-0").succeeded(5.0, 2 * _MEGABYTE)

    clock.jump(3600)
    assert paces.wait_seconds("s-0") == 1.0
    clock.advance(5.0)
    assert paces.wait_seconds("s-0") == 0.0
