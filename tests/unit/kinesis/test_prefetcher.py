import threading

from kinesis_spout.clock import SystemClock
from kinesis_spout.kinesis import Prefetcher
from tests.kinesis_endpoints import wait_until


def test_a_fetch_runs_when_it_is_due_and_not_before() -> None:
    clock = SystemClock()
    ran_at: list[float] = []
    due_at = clock.monotonic() + 0.2
    with Prefetcher() as prefetcher:
        prefetcher.submit(lambda: ran_at.append(clock.monotonic()), due_at)
        wait_until(lambda: bool(ran_at), "the fetch")

    assert ran_at[0] >= due_at


def test_a_fetch_that_names_a_time_runs_again_until_it_names_none() -> None:
    runs: list[int] = []

    def fetch() -> float | None:
        runs.append(1)
        return 0.0 if len(runs) < 5 else None

    with Prefetcher() as prefetcher:
        prefetcher.submit(fetch, 0.0)
        wait_until(lambda: len(runs) == 5, "five runs")

    assert len(runs) == 5


def test_one_that_is_due_earlier_overtakes_a_waiting_one() -> None:
    order: list[str] = []
    later = SystemClock().monotonic() + 0.3
    with Prefetcher(threads=1) as prefetcher:
        prefetcher.submit(lambda: order.append("later"), later)
        prefetcher.submit(lambda: order.append("now"), 0.0)
        wait_until(lambda: len(order) == 2, "both")

    assert order == ["now", "later"]


def test_as_many_run_at_once_as_there_are_threads_allowed() -> None:
    together = threading.Barrier(3, timeout=30)
    met: list[int] = []

    def fetch() -> None:
        met.append(together.wait())

    with Prefetcher(threads=3) as prefetcher:
        for _ in range(3):
            prefetcher.submit(fetch, 0.0)
        wait_until(lambda: len(met) == 3, "three to meet")


def test_closing_ends_the_threads_and_later_fetches_do_nothing() -> None:
    before = threading.active_count()
    runs: list[int] = []
    prefetcher = Prefetcher(threads=2)
    prefetcher.submit(lambda: runs.append(1), 0.0)
    wait_until(lambda: bool(runs), "the fetch")

    prefetcher.close()
    prefetcher.close()
    prefetcher.submit(lambda: runs.append(2), 0.0)

    assert threading.active_count() == before
    assert runs == [1]
