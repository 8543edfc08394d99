"""What coalescing costs: a turn of a queue coordinator, and a request that it declines."""

from collections.abc import Iterator

from figures import Figure, cpu_seconds

from kinesis_spout.recipes import QueueCoordinator

TURNS = 20_000
"""Of a coordinator."""


def figures(*, quick: bool) -> Iterator[Figure]:
    repeats = 5 if quick else 25
    for what, work in (("a turn of QueueCoordinator", _turn), ("a declined request", _declined)):
        seconds = cpu_seconds(work, repeats=repeats)
        yield Figure(what=what, value=seconds / TURNS * 1e9, unit="ns CPU/request")


def _turn() -> None:
    coordinator: QueueCoordinator[str, int] = QueueCoordinator()
    for number in range(TURNS):
        with coordinator.request("key", number) as turn:
            for _ in turn:
                pass


def _declined() -> None:
    """Each comes while one works and one waits."""
    coordinator: QueueCoordinator[str, int] = QueueCoordinator()
    lines = coordinator._shell._lines  # noqa: SLF001 - one that waits would need a thread
    lines.request("key", 0, 0.0)
    lines.request("key", 1, 0.0)
    lines._deadlines.clear()  # noqa: SLF001 - by another clock
    for number in range(TURNS):
        with coordinator.request("key", number):
            pass
