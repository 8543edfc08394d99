"""The order after a failure, over crashes and changes of owner: nothing overtakes what failed.

The shells of the other models, on one shard, where nearly everything that happens is a failure, a commit, or an
end of the ownership. ``LinesOfRecords`` checks each delivery, by what failed under the present ownership and by
the failures that were stored when it began.
"""

from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shard_state import Order
from tests.model.shell_model import ShellModel
from tests.model.stream_in_memory import StoredRecord, TreeVerdict
from tests.model.test_state_manager_by_record import RecordShell
from tests.model.test_state_manager_by_slice import SliceShell

pytestmark = pytest.mark.no_second_run

ORDERED = st.sampled_from((Order.KEY, Order.SHARD))
KEYS = st.lists(st.sampled_from((None, "a", "b")), min_size=2, max_size=8)
SEEDS = st.integers(0, 2**32)
STEPS = 40
EXAMPLES = 100


def begun(shell: ShellModel, order: Order, keys: list[str | None]) -> None:
    shell.begin(order=order, limit=2, shards=1, splits=0, behind=0, max_spared_seconds=0.0)
    for key in keys:
        shell.stream.put("shard-0", key, poison=False)


def something_happens_to_the_owner(shell: ShellModel, random: Random) -> None:
    """It commits, it crashes, or another one takes the shard, and gives it back."""
    if random.random() < 0.6:
        shell.commit()
        stored = shell.store.load()["shard-0"]
        known = {sequence for sequence, _ in stored.attempts}
        assert stored.is_shard_end or shell.lines.waited_for("shard-0") <= known
    elif random.random() < 0.5:
        shell.restart(behind=0)
    else:
        shell.store.acquire("shard-0", shell.manager.fresh_checkpoint("shard-0"))
        shell.stolen.add("shard-0")
        shell.hear_of_lost_shards()
        shell.list_and_acquire(behind=0)


@settings(max_examples=EXAMPLES)
@given(order=ORDERED, keys=KEYS, seed=SEEDS)
@example(order=Order.KEY, keys=["a", "a"], seed=0)
def test_record_by_record(order: Order, keys: list[str | None], seed: int) -> None:
    random, shell = Random(seed), RecordShell()
    begun(shell, order, keys)
    for _ in range(STEPS):
        shell.now += random.choice((0, 0, 5))
        shell.serve("shard-0")
        out = [
            delivery for delivery, _ in shell.handled if (delivery.shard_id, delivery.sequence) in shell.out
        ]
        dice = random.random()
        if out and dice < 0.4:
            shell.fail_one(random.choice(out), rejected=random.random() < 0.1)
        elif out and dice < 0.5:
            delivery = random.choice(out)
            shell.ack_one((delivery.shard_id, delivery.sequence))
        elif shell.exhausted and dice < 0.7:
            shell.bury(shell.exhausted[0])
        elif dice < 0.9:
            something_happens_to_the_owner(shell, random)
    shell.teardown()


@settings(max_examples=EXAMPLES)
@given(order=ORDERED, keys=KEYS, seed=SEEDS)
def test_slice_by_slice(order: Order, keys: list[str | None], seed: int) -> None:
    random, shell = Random(seed), SliceShell()
    begun(shell, order, keys)

    def verdict(record: StoredRecord, attempt: int) -> TreeVerdict:
        del record, attempt
        return random.choice((TreeVerdict.ACK, TreeVerdict.FAIL, TreeVerdict.FAIL, TreeVerdict.REJECT))

    for _ in range(STEPS):
        shell.now += random.choice((0, 0, 5))
        shell.fetch()
        shell.plan()
        dice = random.random()
        if shell.out and dice < 0.5:
            shell.run_job([random.choice(shell.out)], verdict, late=random.random() < 0.2)
        elif shell.exhausted and dice < 0.6:
            gone = shell.exhausted.pop(0)
            shell.stream.record(gone.shard_id, gone.sequence).finished = True
            assert shell.manager.dead_lettered(gone.shard_id, gone.sequence, shell.now)
        elif dice < 0.9:
            something_happens_to_the_owner(shell, random)
    shell.teardown()
