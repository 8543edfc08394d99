"""What must hold of every run, whatever was done to it. Each checker names what does not, one sentence each.

They judge evidence only: the ledger of what was put, what each process wrote down before and after its handler,
and every change that ZooKeeper ever took.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator
from http import HTTPStatus
from itertools import pairwise
from typing import Final

from shard_state.checkpoint.checkpoint import MAX_ENCODED_BYTES
from tests.fault.suite.consumers.delivery_log import NO_EPOCH, Entry, Kind, RecordId
from tests.fault.suite.consumers.payload import Act
from tests.fault.suite.judgement.evidence import Evidence, covers, stored_attempts

CLOCK_SECONDS: Final = 0.002
"""ZooKeeper's times are cut to the millisecond."""
STALE_SECONDS: Final = 5.0
"""A consumer looks twice a second; a busy machine may keep it from that."""
STALE_ON_SPARK_SECONDS: Final = 40.0
"""A job that is under way goes on with the slices that it was given, until the message time-out at most."""
MAX_RESIDENT_BYTES: Final = 400 << 20
SILENT_PROBES: Final = 5
"""Of one a second. The machine is shared with everything else of the run."""
MAX_THREADS: Final = 64
MAX_DESCRIPTORS: Final = 256

Checker = Callable[[Evidence], Iterator[str]]


def lost(evidence: Evidence) -> Iterator[str]:
    """Every record was handled to the end, or has a dead letter."""
    for put in evidence.ledger:
        if put.record not in evidence.lettered and not evidence.of(put.record, Kind.HANDLED):
            yield f"{_named(put.record)} was never handled, and has no dead letter"


def unfinished(evidence: Evidence) -> Iterator[str]:
    """In the end what is stored says of every record that it is finished."""
    for shard, puts in evidence.shards.items():
        stored = evidence.checkpoints_of.get(shard)
        for put in puts:
            if stored is None or not covers(stored[-1].checkpoint, put.record.sequence):
                yield f"{_named(put.record)} is not finished in what is stored in the end"


def finished_too_early(evidence: Evidence) -> Iterator[str]:
    """Nothing stored says of a record that it is finished before it was handled or its dead letter is durable."""
    for shard, stored in evidence.checkpoints_of.items():
        waiting = [put.record for put in evidence.shards.get(shard, ())]
        for write in stored:
            up_to = (
                write.checkpoint.holes[-1][1] if write.checkpoint.holes else write.checkpoint.base
            ).number
            near = waiting[: bisect_right(waiting, up_to, key=lambda record: record.sequence)]
            covered = [record for record in near if covers(write.checkpoint, record.sequence)]
            for record in covered:
                finished = evidence.finished_at(record)
                if finished is None or finished > write.time + CLOCK_SECONDS:
                    yield f"{_named(record)} was stored as finished at {write.time:.3f}, and was at {finished}"
            if covered:
                settled = set(covered)
                waiting = [record for record in waiting if record not in settled]


def acked_without_success(evidence: Evidence) -> Iterator[str]:
    """Nothing is acked but a delivery whose handler has done its work."""
    for record in evidence.by_record:
        handled = {(entry.life, entry.epoch, entry.attempt) for entry in evidence.of(record, Kind.HANDLED)}
        for entry in evidence.of(record, Kind.ACKED):
            if (entry.life, entry.epoch, entry.attempt) not in handled:
                yield f"{_named(record)} was acked by {entry.life} after attempt {entry.attempt}, which failed"


def checkpoint_back(evidence: Evidence) -> Iterator[str]:
    """The checkpoint of a shard never decreases, and its epoch neither."""
    for shard, stored in evidence.checkpoints_of.items():
        for before, after in pairwise(stored):
            if after.checkpoint.base < before.checkpoint.base:
                yield f"{shard} went back from {before.checkpoint.base} to {after.checkpoint.base}"
            if after.epoch < before.epoch:
                yield f"{shard} went back from epoch {before.epoch} to {after.epoch}"


def zombie_writes(evidence: Evidence) -> Iterator[str]:
    """No write was accepted but from the session that owned the shard, under the epoch that it began."""
    for shard, stored in evidence.checkpoints_of.items():
        epoch, session = 0, None
        for write in stored:
            if write.acquires:
                epoch, session = write.epoch, write.session
            elif write.epoch == 0 and epoch == 0:
                continue  # the application's first start
            if write.epoch != epoch or write.session != session or write.owner_session != session:
                yield (
                    f"{shard}: session {write.session:x} wrote under epoch {write.epoch}, while "
                    f"{session or 0:x} had epoch {epoch} and the owner was {write.owner_session or 0:x}"
                )


def unexplained_duplicates(evidence: Evidence) -> Iterator[str]:
    """A record is handled again only after the shard had another ownership, or the worker that handled it died.

    A job of Spark may begin long after it was planned, and the log does not say under which ownership that was.
    """
    for record, before, again in _repeats(evidence):
        if evidence.epoch_of(before) == evidence.epoch_of(again) and not (
            _worker_died(evidence, before, again) or _may_be_of_an_earlier_ownership(evidence, before)
        ):
            yield f"{_named(record)} was handled twice under epoch {evidence.epoch_of(again)}, by {again.life}"


def forgotten(evidence: Evidence) -> Iterator[str]:
    """What was acked before the last commit but one of an ownership is not handled again by the next.

    One thread commits. So the last commit of an ownership was drawn up after the last but one had taken effect,
    and has everything that was acked before that.
    """
    for record, before, again in _repeats(evidence):
        old, new = evidence.epoch_of(before), evidence.epoch_of(again)
        acked = [
            entry.time
            for entry in evidence.of(record, Kind.ACKED)
            if entry.life == before.life and evidence.epoch_of(entry) == old
        ]
        writes = [write for write in evidence.checkpoints_of[record.shard] if write.epoch == old]
        if new > old and acked and len(writes) > 1 and acked[0] < writes[-2].time - CLOCK_SECONDS:
            yield f"{_named(record)} was acked at {acked[0]:.3f} under epoch {old}, and not stored by two commits"


def delivered_though_stored(evidence: Evidence) -> Iterator[str]:
    """A new owner delivers nothing that was stored as finished when it became the owner."""
    for entry in evidence.entries:
        if entry.kind is not Kind.DELIVERED:
            continue
        acquired = evidence.acquisitions.get((entry.record.shard, evidence.epoch_of(entry)))
        if acquired is not None and covers(acquired.checkpoint, entry.record.sequence):
            yield f"{_named(entry.record)} was delivered under epoch {acquired.epoch}, and was stored as finished"


def stale_deliveries(evidence: Evidence) -> Iterator[tuple[Entry, float]]:
    """Give the deliveries that were made after another owner had begun, and how long after.

    One that slept meanwhile has the time since it woke up.
    """
    acquired: dict[str, tuple[list[float], list[int]]] = defaultdict(lambda: ([], []))
    for (shard, epoch), stored in evidence.acquisitions.items():
        acquired[shard][0].append(stored.time)
        acquired[shard][1].append(epoch)
    for entry in evidence.entries:
        if entry.kind is not Kind.DELIVERED:
            continue
        times, epochs = acquired[entry.record.shard]
        at = bisect_right(epochs, evidence.epoch_of(entry))
        if at < len(epochs) and times[at] < entry.time:
            woken = [wake for wake in evidence.wakes.get(entry.life, ()) if wake < entry.time]
            yield entry, entry.time - max([times[at], *woken])


def too_stale(evidence: Evidence) -> Iterator[str]:
    """A consumer that has lost a shard stops handing out its records before long."""
    for entry, seconds in stale_deliveries(evidence):
        if seconds > (STALE_ON_SPARK_SECONDS if _is_on_spark(entry) else STALE_SECONDS):
            yield f"{_named(entry.record)} was delivered by {entry.life} {seconds:.1f} s after it lost the shard"


def order_per_key(evidence: Evidence) -> Iterator[str]:
    """A record is first delivered after the one before it, of its key and shard, was handled or given up.

    Not after one whose handler never said how it ended: the next of its key does not wait for that.
    """
    for puts in evidence.shards.values():
        by_key = defaultdict(list)
        for put in puts:
            by_key[put.key].append(put)
        for key, of_key in by_key.items():
            for before, after in pairwise(of_key):
                delivered = evidence.of(after.record, Kind.DELIVERED)
                over = evidence.given_up_or_handled_at(before.record)
                if before.act is Act.FORGET or not delivered:
                    continue
                if over is None or delivered[0].time < over:
                    yield (
                        f"{_named(after.record)} of {key} was delivered at {delivered[0].time:.3f} by "
                        f"{delivered[0].life}, before {_named(before.record)} was done at {over}"
                    )


def parents_first(evidence: Evidence) -> Iterator[str]:
    """No record of a shard is delivered before every record of its parents is finished."""
    finished = {
        shard: max(evidence.finished_at(put.record) or float("inf") for put in puts)
        for shard, puts in evidence.shards.items()
    }
    for shard, puts in evidence.shards.items():
        delivered = [entry.time for put in puts[:1] for entry in evidence.of(put.record, Kind.DELIVERED)]
        for parent in evidence.parents.get(shard, ()):
            if delivered and parent in finished and min(delivered) < finished[parent]:
                yield f"{shard} was delivered from {min(delivered):.3f}, its parent {parent} was not finished"


def children_too_early(evidence: Evidence) -> Iterator[str]:
    """No shard is owned before it is stored that each of its parents is over."""
    over: set[str] = set()
    for write in evidence.checkpoints:
        if write.checkpoint.is_shard_end:
            over.add(write.shard)
        elif write.acquires:
            for parent in evidence.parents.get(write.shard, ()):
                if parent not in over:
                    yield f"{write.shard} was owned at {write.time:.3f}, before its parent {parent} was over"


def attempts(evidence: Evidence) -> Iterator[str]:
    """Attempts count up one by one, also from owner to owner, and stay within the limit.

    A failure that may be the beginning of an outage is an attempt more.
    """
    for record, entries in evidence.by_record.items():
        last: dict[int, int] = {}
        for entry in entries:
            epoch = evidence.epoch_of(entry)
            if entry.kind is not Kind.DELIVERED:
                continue
            acquired = evidence.acquisitions.get((record.shard, epoch))
            if acquired is None:
                continue
            # One that had all its attempts, and whose letter was not durable yet, has its last one again.
            restored = min(stored_attempts(acquired.checkpoint, record.sequence), evidence.retry_limit)
            before = last.get(epoch, restored)
            # Of a job on Spark that died, those deliveries are not counted whose end nobody knows.
            uncounted = entry.attempt == before and _is_on_spark(entry)
            if entry.attempt != before + 1 and not uncounted:
                yield f"{_named(record)}: attempt {entry.attempt} came after {before}, under epoch {epoch}"
            if entry.attempt > 1 + evidence.retry_limit + evidence.spared[record, epoch]:
                yield f"{_named(record)}: attempt {entry.attempt} is beyond the limit"
            last[epoch] = entry.attempt


def letters(evidence: Evidence) -> Iterator[str]:
    """Dead letters are of records that had all their attempts, or were rejected; of every such record."""
    acts = {put.record: put.act for put in evidence.ledger}
    for letter in evidence.letters:
        act = acts.get(letter.record)
        spared = max((count for (of, _), count in evidence.spared.items() if of == letter.record), default=0)
        over = letter.attempts - 1 - evidence.retry_limit
        expected = {Act.POISON: "exhausted", Act.REJECT: "rejected"}
        if letter.reason != (expected.get(act) if act else None) or (
            act is Act.POISON and not 0 <= over <= spared
        ):
            yield f"{_named(letter.record)} ({act}) has a letter: {letter.reason} after {letter.attempts}"
    for record, act in acts.items():
        if act in {Act.POISON, Act.REJECT} and record not in evidence.lettered:
            yield f"{_named(record)} ({act}) has no dead letter"


def resources(evidence: Evidence) -> Iterator[str]:
    """Memory, threads, file descriptors and stored nodes stay within their bounds."""
    for sample in evidence.samples:
        if sample.resident_bytes > MAX_RESIDENT_BYTES:
            yield f"{sample.life} had {sample.resident_bytes >> 20} MiB in memory"
        if sample.threads > MAX_THREADS:
            yield f"{sample.life} had {sample.threads} threads"
        if sample.descriptors > MAX_DESCRIPTORS:
            yield f"{sample.life} had {sample.descriptors} file descriptors"
    for write in evidence.checkpoints:
        if write.size_bytes > MAX_ENCODED_BYTES:
            yield f"the checkpoint of {write.shard} was {write.size_bytes} bytes at {write.time:.3f}"


def restarts_by_livez(evidence: Evidence) -> Iterator[str]:
    """No consumer says that it is not alive, nor is silent for as many probes as an orchestrator waits for."""
    silent: dict[str, int] = defaultdict(int)
    for probe in evidence.probes:
        silent[probe.life] = 0 if probe.status is not None else silent[probe.life] + 1
        if probe.status not in {None, HTTPStatus.OK}:
            yield f"{probe.life} said {probe.status} at {probe.time:.3f}: {probe.said.strip()}"
        elif silent[probe.life] == SILENT_PROBES:
            yield f"{probe.life} answered none of {SILENT_PROBES} probes until {probe.time:.3f}: {probe.said}"


CHECKERS: Final[dict[str, Checker]] = {
    "lost": lost,
    "not finished": unfinished,
    "finished too early": finished_too_early,
    "acked without success": acked_without_success,
    "checkpoint back": checkpoint_back,
    "zombie writes": zombie_writes,
    "unexplained duplicates": unexplained_duplicates,
    "acked, forgotten": forgotten,
    "delivered though stored": delivered_though_stored,
    "delivered long after the loss": too_stale,
    "order violations": order_per_key,
    "parents not first": parents_first,
    "children too early": children_too_early,
    "attempts": attempts,
    "dead letters": letters,
    "out of bounds": resources,
    "restarts by /livez": restarts_by_livez,
}


def duplicates(evidence: Evidence) -> int:
    """Count how often a record was handled again."""
    return sum(1 for _ in _repeats(evidence))


def failures_by_chance(evidence: Evidence) -> int:
    """Count the deliveries that were drawn to fail."""
    return sum(
        entry.attempt <= put.failures
        for put in evidence.ledger
        if put.failures
        for entry in evidence.of(put.record, Kind.DELIVERED)
    )


def _repeats(evidence: Evidence) -> Iterator[tuple[RecordId, Entry, Entry]]:
    for record in evidence.by_record:
        for before, again in pairwise(evidence.of(record, Kind.HANDLED)):
            yield record, before, again


def _worker_died(evidence: Evidence, before: Entry, again: Entry) -> bool:
    started = evidence.workers.get(again.life, ())
    return before.life == again.life and any(before.time < moment <= again.time for moment in started)


def _may_be_of_an_earlier_ownership(evidence: Evidence, entry: Entry) -> bool:
    """Tell whether a job came so late that its life had lost the shard, and had owned it more than once."""
    if not _is_on_spark(entry):
        return False
    epochs = evidence.epochs_of_life(entry)
    shard = entry.record.shard
    acquired = [
        at.epoch for (of, _), at in evidence.acquisitions.items() if of == shard and at.time < entry.time
    ]
    return len(epochs) > 1 and max(acquired) > epochs[-1]


def _is_on_spark(entry: Entry) -> bool:
    return entry.epoch == NO_EPOCH


def _named(record: RecordId) -> str:
    return f"{record.shard}:{record.sequence}"
