"""RetryQueue against a plain dict of due times."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from shard_state import RetryQueue, SequenceNumber

RECORDS = st.integers(0, 12).map(SequenceNumber)
TIMES = st.integers(0, 20).map(float)


class RetryQueueMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.queue = RetryQueue()
        self.due: dict[SequenceNumber, float] = {}

    @rule(sequence=RECORDS, due_at=TIMES)
    def add(self, sequence: SequenceNumber, due_at: float) -> None:
        assert self.queue.add(sequence, due_at) == (sequence not in self.due)
        self.due.setdefault(sequence, due_at)

    @rule(sequence=RECORDS)
    def cancel(self, sequence: SequenceNumber) -> None:
        assert self.queue.cancel(sequence) == (sequence in self.due)
        self.due.pop(sequence, None)

    @rule(now=TIMES)
    def take(self, now: float) -> None:
        first = self.queue.first_due(now)
        ready = sorted((due_at, sequence) for sequence, due_at in self.due.items() if due_at <= now)
        assert first == (ready[0][1] if ready else None)
        if first is not None:
            assert self.queue.cancel(first)
            del self.due[first]

    @rule(times=st.integers(1, 90), sequence=RECORDS, due_at=TIMES)
    def add_and_cancel_many_times(self, times: int, sequence: SequenceNumber, due_at: float) -> None:
        for _ in range(times):
            self.queue.cancel(sequence)
            self.queue.add(sequence, due_at)
        self.due[sequence] = due_at

    @invariant()
    def agrees(self) -> None:
        assert len(self.queue) == len(self.due)
        assert set(self.queue) == set(self.due)
        assert self.queue.next_due() == min(self.due.values(), default=None)
        assert len(self.queue._heap) <= 64 + 2 * len(self.due) + 1


TestRetryQueue = RetryQueueMachine.TestCase
TestRetryQueue.settings = settings(max_examples=60, stateful_step_count=40)
