"""How often a worker unpickles the handlers that it calls."""

import pickle
from collections import Counter
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


def test_a_worker_that_has_met_many_handlers_unpickles_the_one_anew_that_it_called_longest_ago() -> None:
    oldest, used = PickledHandler.of(Named("oldest")), PickledHandler.of(Named("used"))
    before = oldest.load(), used.load()
    for number in range(7):
        PickledHandler.of(Named(str(number))).load()
        used.load()

    assert used.load() is before[1]
    assert oldest.load() is not before[0]
    assert oldest.load()() == "oldest"


def test_the_pickled_handler_keeps_what_it_carries_out_of_its_text() -> None:
    kept = PickledHandler.of(Named("secret"))

    assert b"secret" in kept.pickled
    assert "secret" not in repr(kept)
