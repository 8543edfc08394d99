"""The decisions of the queue coordinators against an explicit model: who works, who waits, what became of what."""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kinesis_spout.recipes.coalescing.line import TABLE, Answer, Event, State, Step
from kinesis_spout.recipes.coalescing.lines import Ended, KeyLines

pytestmark = pytest.mark.no_second_run

LEASE_SECONDS = 10.0
KEYS = st.sampled_from("abc")


def test_every_event_has_an_answer_in_every_state() -> None:
    assert set(TABLE) == {(state, event) for state in State for event in Event}


def test_who_may_be_in_process_and_who_may_wait_is_what_the_states_say() -> None:
    def step(state: State, event: Event) -> Step:
        return TABLE[state, event]

    assert step(State.INIT, Event.REQUEST) == (State.PROCESS, Answer.ACCEPT)
    assert step(State.PROCESS, Event.REQUEST) == (State.BLOCK, Answer.WAIT)
    assert step(State.BLOCK, Event.REQUEST) == (State.BLOCK, Answer.DECLINE)
    assert step(State.BLOCK, Event.DONE) == (State.PROCESS, Answer.PROMOTE)
    assert step(State.LEFT, Event.DONE) == (State.PROCESS, Answer.GO_ON)
    for state in State:
        refused = {event for event in Event if step(state, event).answer is Answer.REFUSE}
        assert all(step(state, event).state is state for event in refused)


class _ModelKey:
    """What a key should be like. Mutable."""

    def __init__(self) -> None:
        self.worker: int | None = None
        self.works_on: int | None = None
        self.lease_until = 0.0
        self.waiting: int | None = None
        self.waits: int | None = None
        """The newest payload that waits, with or without somebody who waits with it."""
        self.relied_on = False
        """Whether somebody was declined for it."""


class CoalescingLines(RuleBasedStateMachine):
    """Payloads are numbers that grow, so the newest is the largest."""

    def __init__(self) -> None:
        super().__init__()
        self.lines = KeyLines(LEASE_SECONDS)
        self.now = 0.0
        self.keys: dict[str, _ModelKey] = {}
        self.payload = 0
        self.fates: dict[int, str] = {}
        """What became of each payload: handled, superseded, given up, handed back."""
        self.evicted: list[tuple[str, int]] = []

    def model(self, key: str) -> _ModelKey:
        return self.keys.setdefault(key, _ModelKey())

    def fate(self, payload: int | None, what: str) -> None:
        assert payload is not None
        assert payload not in self.fates, f"{payload} was {self.fates[payload]}, and is {what}"
        self.fates[payload] = what

    def begin(self, key: str, token: int | None, payload: int | None) -> None:
        model = self.model(key)
        assert model.worker is None, "two in process"
        model.worker, model.works_on, model.lease_until = token, payload, self.now + LEASE_SECONDS

    def turn_over(self, ended: Ended, what: str) -> None:
        """Take a turn's end over into the model, and check its answer."""
        key, model = str(ended.key), self.model(str(ended.key))
        if model.works_on not in self.fates:
            self.fate(model.works_on, what)
        model.worker = model.works_on = None
        if model.waiting is not None:
            assert (ended.answer, ended.token, ended.payload) == (Answer.PROMOTE, model.waiting, model.waits)
            waiting, waits = model.waiting, model.waits
            model.waiting = model.waits = None
            model.relied_on = False
            self.begin(key, waiting, waits)
        elif model.waits is None:
            assert ended.answer is Answer.LEAVE
        elif what == "handled":
            assert (ended.answer, ended.payload) == (Answer.GO_ON, model.waits)
            waits, model.waits, model.relied_on = model.waits, None, False
            self.begin(key, ended.token, waits)
        else:
            assert (ended.answer, ended.payload) == (Answer.HAND_BACK, model.waits)
            self.fate(model.waits, "handed back")
            model.waits, model.relied_on = None, False

    def overdue(self) -> list[str]:
        return [
            key for key, each in self.keys.items() if each.worker is not None and self.now >= each.lease_until
        ]

    @rule(key=KEYS)
    def request(self, key: str) -> None:
        self.payload += 1
        overdue = set(self.overdue())
        for each in overdue:
            worker = self.model(each).worker
            assert worker is not None
            self.evicted.append((each, worker))
        superseded = None
        model = self.model(key)
        if key in overdue and model.waiting is None and model.waits is not None:
            # What comes stands for what was left.
            superseded, model.waits = model.waits, None
            model.relied_on = False
        found = self.lines.request(key, self.payload, self.now)
        for ended in found.ended:
            assert ended.key in overdue
            self.turn_over(ended, "failed")
        if superseded is not None:
            self.fate(superseded, "superseded")
            self.fate(model.works_on, "failed")
            model.worker = model.works_on = None
        if model.worker is None:
            assert found.answer is Answer.ACCEPT
            self.begin(key, found.token, self.payload)
        elif model.waiting is None:
            assert found.answer is Answer.WAIT
            if model.waits is not None:
                self.fate(model.waits, "superseded")
            model.waiting, model.waits = found.token, self.payload
        else:
            assert found.answer is Answer.DECLINE
            self.fate(model.waits, "superseded")
            model.waits, model.relied_on = self.payload, True

    @rule(key=KEYS, event=st.sampled_from([Event.DONE, Event.FAILED]))
    def end(self, key: str, event: Event) -> None:
        model = self.model(key)
        if model.worker is None:
            return
        ended = self.lines.end(key, model.worker, event, self.now)
        self.turn_over(ended, "handled" if event is Event.DONE else "failed")

    @precondition(lambda self: self.evicted)
    @rule(data=st.data())
    def the_end_of_one_that_was_evicted_is_refused(self, data: Any) -> None:
        key, token = data.draw(st.sampled_from(self.evicted))
        before = self.lines.line(key)
        assert self.lines.end(key, token, Event.DONE, self.now).answer is Answer.REFUSE
        assert not self.lines.renew(key, token, self.now)
        assert self.lines.line(key) == before

    @rule(key=KEYS)
    def withdraw(self, key: str) -> None:
        model = self.model(key)
        if model.waiting is None:
            return
        assert self.lines.withdraw(key, model.waiting)
        assert not self.lines.withdraw(key, model.waiting)
        model.waiting = None
        if not model.relied_on:
            self.fate(model.waits, "given up")
            model.waits = None

    @rule(key=KEYS)
    def renew(self, key: str) -> None:
        model = self.model(key)
        if model.worker is not None:
            assert self.lines.renew(key, model.worker, self.now)
            model.lease_until = self.now + LEASE_SECONDS

    @rule(key=KEYS)
    def look_at_the_lease(self, key: str) -> None:
        """As one that waits does."""
        model = self.model(key)
        if model.waiting is None:
            return
        worker, is_over = model.worker, key in self.overdue()
        ended = self.lines.expire(key, self.now)
        assert (ended is not None) == is_over
        if ended is not None:
            assert worker is not None
            self.evicted.append((key, worker))
            self.turn_over(ended, "failed")

    @rule(seconds=st.sampled_from([1.0, 6.0, 11.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def keys_are_as_they_should_be(self) -> None:
        busy = {key: each for key, each in self.keys.items() if each.worker is not None}
        assert len(self.lines) == len(busy), "idle keys leave at once"
        for key, model in busy.items():
            line = self.lines.line(key)
            assert line is not None
            assert (line.worker, line.waiting) == (model.worker, model.waiting)
            assert self.lines.deadline(key) == model.lease_until
            if line.state is not State.PROCESS:
                assert line.newest == model.waits

    @invariant()
    def every_payload_is_somewhere(self) -> None:
        under_way = {each.works_on for each in self.keys.values()} | {
            each.waits for each in self.keys.values()
        }
        assert self.fates.keys() | (under_way - {None}) == set(range(1, self.payload + 1))
        assert not self.fates.keys() & under_way

    @invariant()
    def the_counts_add_up(self) -> None:
        counts = self.lines.counts
        waiting = sum(each.waiting is not None for each in self.keys.values())
        working = sum(each.worker is not None for each in self.keys.values())
        assert counts.requested == self.payload
        assert counts.waited == counts.promoted + counts.gave_up + waiting
        turns = counts.accepted + counts.promoted + counts.continued
        assert turns == counts.completed + counts.failed + counts.expired + working

    def teardown(self) -> None:
        """Where those who work and wait do what they should, nothing is left."""
        for key in list(self.keys):
            while self.model(key).worker is not None:
                self.end(key, Event.DONE)
        assert len(self.lines) == 0
        assert self.fates.keys() == set(range(1, self.payload + 1))


TestCoalescingLines = CoalescingLines.TestCase
TestCoalescingLines.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
