"""How often a worker unpickles the handlers that it calls."""

import pickle
from collections import Counter
from time import monotonic
from typing import Any

from pyspark import cloudpickle

from kinesis_spout.spark.pickled_handler import PickledHandler

UNPICKLED: Counter[str] = Counter()


class Named:
    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (self.name,)


def _unpickled(name: str) -> Named:
    UNPICKLED[name] += 1
    return Named(name)


def test_two_queries_that_take_turns_in_a_worker_each_unpickle_their_handler_once() -> None:
    first, second = PickledHandler.of(Named("first")), PickledHandler.of(Named("second"))
    for _ in range(100):
        assert (first.load()(), second.load()()) == ("first", "second")

    assert (UNPICKLED["first"], UNPICKLED["second"]) == (1, 1)


def test_each_task_finds_the_copy_of_the_tasks_before_it() -> None:
    kept = PickledHandler.of(Named("kept"))
    again: PickledHandler[Named] = pickle.loads(cloudpickle.dumps(kept))  # type: ignore[no-untyped-call]

    assert again.load() is kept.load()


def test_fifty_queries_that_take_turns_in_a_worker_each_unpickle_their_handler_once() -> None:
    handlers = [PickledHandler.of(Named(f"one of fifty: {number}")) for number in range(50)]
    for _ in range(9):
        for handler in handlers:
            handler.load()()

    assert {count for name, count in UNPICKLED.items() if name.startswith("one of fifty")} == {1}


def test_a_worker_that_has_met_many_handlers_unpickles_the_one_anew_that_it_called_longest_ago() -> None:
    oldest, used = PickledHandler.of(Named("oldest")), PickledHandler.of(Named("used"))
    before = oldest.load(), used.load()
    for number in range(255):
        PickledHandler.of(Named(str(number))).load()
        used.load()

    assert used.load() is before[1]
    assert oldest.load() is not before[0]
    assert oldest.load()() == "oldest"


def test_a_handler_of_a_stopped_query_is_given_up_when_another_is_loaded() -> None:
    stopped, running = PickledHandler.of(Named("stopped")), PickledHandler.of(Named("running"))
    now = monotonic()
    before = stopped.load(lambda: now), running.load(lambda: now)
    running.load(lambda: now + 600)
    PickledHandler.of(Named("another")).load(lambda: now + 1_200)

    assert running.load(lambda: now + 1_200) is before[1]
    assert stopped.load(lambda: now + 1_200) is not before[0]


def test_the_pickled_handler_keeps_what_it_carries_out_of_its_text() -> None:
    kept = PickledHandler.of(Named("secret"))

    assert b"secret" in kept.pickled
    assert "secret" not in repr(kept)
