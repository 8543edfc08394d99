"""What a bolt leaves in its state that cannot be kept: its tuple fails, and the others' state is exact."""

from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

import pytest

from kinesis_spout.storm import KeyValueState, StatefulBolt, Topology, Tuple
from kinesis_spout.storm.local import LocalResult
from kinesis_spout.testing import ManualClock
from tests.support.storm.scripted_topology import Scripted, UnloadableError, begin, passes_on, values_of

Batch = Sequence[tuple[str, str]]

PICKLED: list[str] = []
"""The values that were pickled since a test began. Here, as each task of a bolt is a copy."""


class Noted:
    """Says when it is pickled."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __reduce__(self) -> tuple[Any, ...]:
        PICKLED.append(self.what)
        return Noted, (self.what,)


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


VALUES: dict[str, Callable[[], Any]] = {
    "lock": Lock,
    "lambda": lambda: lambda: None,
    "unloadable": lambda: UnloadableError(1, "cannot be made of one argument"),
    "deep": lambda: nested(100_000),
}


class Histories(StatefulBolt):
    """Keeps a list of what came, by key. It changes lists in place, and acks at once."""

    tick_seconds = 10.0

    def init_state(self, state: KeyValueState) -> None:
        self.state = state

    def execute(self, tup: Tuple) -> None:
        if tup.is_tick:
            self.tick()
            return
        history = self.state.get(tup["key"])
        if history is None:
            history = []
            self.state.put(tup["key"], history)
        elif "put" not in tup["what"]:
            self.state.put(tup["key"], history)
        what = tup["what"]
        history.append(VALUES[what]() if what in VALUES else what)
        self.collector.ack(tup)

    def tick(self) -> None:
        """Nothing."""


def topology(bolt: StatefulBolt, tasks: int = 1) -> Topology:
    builder = begin(["key", "what"])
    builder.set_bolt("pass", Scripted(passes_on, ["key", "what"])).shuffle_grouping("numbers")
    builder.set_bolt("keep", bolt, tasks).fields_grouping("pass", ["key"])
    return builder.build()


def failed(result: LocalResult) -> list[Any]:
    return [values for values, _ in result.failed]


@pytest.mark.parametrize("tasks", [1, 3])
@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("lock", "TypeError: cannot pickle '_thread.lock' object"),
        ("lambda", "local object '<lambda>.<locals>.<lambda>'"),
        ("unloadable", "missing 1 required positional argument"),
        ("deep", "RecursionError"),
    ],
)
def test_only_the_tree_fails_that_put_it(what: str, why: str, tasks: int) -> None:
    local = topology(Histories(), tasks).local()
    local.run([("a", "0"), ("b", "0")])

    result = local.run([("a", "1"), ("a", what), ("b", "1"), ("a", "2"), ("c", what), ("c", "1")])

    assert failed(result) == [("a", what), ("c", what)]
    assert len(result.acked) == 4
    assert local.state == {"keep": {"a": ["0", "1", "2"], "b": ["0", "1"], "c": ["1"]}}
    reason = result.reasons[0]
    assert reason.startswith(
        "keep: expected a value of its state that can be pickled and unpickled, got list for the key 'a' ("
    )
    assert why in reason
    assert reason.endswith("; put plain values")
    assert result.counts["keep"].errors == 2


def test_a_change_in_place_of_what_another_tuple_put_fails_the_tuple_that_made_it() -> None:
    class PutsOnce(Histories):
        def execute(self, tup: Tuple) -> None:
            if tup["key"] not in self.state:
                self.state.put(tup["key"], [])
            what = tup["what"]
            self.state.get(tup["key"]).append(VALUES[what]() if what in VALUES else what)
            self.collector.ack(tup)

    local = topology(PutsOnce()).local()

    result = local.run([("a", "1"), ("a", "2"), ("a", "lock"), ("a", "3")])

    assert failed(result) == [("a", "lock")]
    assert local.state == {"keep": {"a": ["1", "2", "3"]}}


def test_a_change_of_what_the_bolt_remembers_is_not_kept_and_does_not_end_the_query() -> None:
    class Remembers(Histories):
        def execute(self, tup: Tuple) -> None:
            if tup["what"] == "begin":
                self.remembered: list[Any] = []
                self.state.put(tup["key"], self.remembered)
            else:
                self.remembered.append(VALUES[tup["what"]]())
            self.collector.ack(tup)

    local = topology(Remembers()).local()

    assert local.run([("a", "begin"), ("a", "lock")]).failed == []
    assert local.state == {"keep": {"a": []}}


def test_what_a_bolt_puts_when_it_is_flushed_fails_the_tuple_that_it_held_back_for_it() -> None:
    class PutsLater(Histories):
        def init_state(self, state: KeyValueState) -> None:
            super().init_state(state)
            self.later: list[Tuple] = []

        def execute(self, tup: Tuple) -> None:
            self.later.append(tup)

        def flush(self) -> None:
            for tup in self.later:
                super().execute(tup)

    local = topology(PutsLater(), 2).local()

    result = local.run([("a", "1"), ("a", "lock")])

    assert failed(result) == [("a", "lock")]
    assert local.state == {"keep": {"a": ["1"]}}
    assert local.run([("a", "2")]).failed == []
    assert local.state == {"keep": {"a": ["1", "2"]}}


def test_what_a_tick_puts_fails_no_tuple_and_is_taken_back(caplog: pytest.LogCaptureFixture) -> None:
    class PutsOnTicks(Histories):
        def tick(self) -> None:
            self.state.put("a", Lock())

    clock = ManualClock()
    local = topology(PutsOnTicks()).local(clock.time)
    local.run([("a", "1")])
    clock.advance(10)

    result = local.run([("a", "2")])

    assert result.failed == []
    assert local.state == {"keep": {"a": ["1", "2"]}}
    assert "got lock for the key 'a'" in result.counts["keep"].last_error
    assert "got lock for the key 'a'" in caplog.text


def test_a_key_that_cannot_be_pickled_or_hashed_fails_its_tuple() -> None:
    class Text(str):
        __slots__ = ()

        def __reduce__(self) -> tuple[Any, ...]:
            raise TypeError("is only here")

    class PutsKeys(Histories):
        def execute(self, tup: Tuple) -> None:
            if tup["what"] == "list":
                self.state.put([tup["key"]], 1)
            self.state.put(Text(tup["key"]) if tup["what"] == "text" else tup["key"], 1)
            self.collector.ack(tup)

    local = topology(PutsKeys()).local()

    result = local.run([("a", "list"), ("b", "text"), ("c", "plain")])

    assert values_of(result.failed) == ["a", "b"]
    unhashable, unfit = result.reasons
    assert unhashable.startswith("keep: TypeError: ")  # Python 3.14 says more
    assert "unhashable type: 'list'" in unhashable
    assert unfit == (
        "keep: InvalidConfig: expected a key that can be pickled and unpickled, got Text (TypeError: is only "
        "here); put a plain value, such as text"
    )
    assert local.state == {"keep": {"c": 1}}


def test_a_value_is_pickled_once_a_micro_batch_however_often_it_is_put() -> None:
    class PutsNoted(Histories):
        def execute(self, tup: Tuple) -> None:
            self.state.put(tup["key"], Noted(tup["what"]))
            self.collector.ack(tup)

    PICKLED.clear()
    topology(PutsNoted()).local().run([("a", "1"), ("a", "2"), ("b", "3")])

    assert PICKLED == ["2", "3"]
