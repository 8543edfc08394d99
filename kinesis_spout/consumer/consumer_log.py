"""The spout's life in the log, at INFO: a line for each change, and a summary once a minute.

All doors use it; for a query on Spark the driver calls it. Warnings and errors are logged where they occur.
"""

import logging
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from kinesis_spout.consumer.counters import Counters
from kinesis_spout.model.errors import KinesisSpoutError
from kinesis_spout.model.logs import (
    LogPace,
    Reshards,
    named,
    of_stream,
    package_version,
    readable,
    readable_start,
    shards,
)
from shard_state import Assignment, OperatorPause, PendingCommit, Position, Shard, StartPositions

_log = logging.getLogger(__name__)

_LONGEST_SHOWN: Final = 200
"""Characters of a setting."""


class ConsumerLog:
    """Logs one consumer's life. Mutable; one thread's at a time."""

    def __init__(self, *, stream: str, app: str, member: str, door: str) -> None:
        self._stream = stream
        self._app = app
        self._member = member
        self._door = door
        self._is_running = False
        self._reshards = Reshards()
        self._waited_for: set[str] = set()
        self._leaving: set[str] = set()
        self._stands_by = False
        self._paused: set[str] = set()
        self._operator_pause = OperatorPause()
        self._is_full = False
        self._pace = LogPace()
        self._commits = 0

    def started(self) -> None:
        self._is_running = True
        _log.info(
            "started: stream %s, app %s, member %s, kinesis-spout %s, by %s",
            self._stream,
            self._app,
            self._member,
            package_version(),
            self._door,
        )

    def resolved(self, initial: str, wanted: StartPositions, begun: StartPositions) -> None:
        """Log where reading begins: at ``begun``, while a new application would begin at ``wanted``."""
        if begun == wanted:
            _log.info(
                "position: %s reads shards without stored progress from %s (initial_position %s)",
                self._app,
                readable_start(begun),
                initial[:_LONGEST_SHOWN],
            )
        else:
            _log.info(
                "position: %s goes on from what is stored; it first began at %s",
                self._app,
                readable_start(begun),
            )

    def began_again(self, deployment: str, before: StartPositions, start: StartPositions) -> None:
        _log.warning(
            "position: %s begins again at %s, for deployment %s; its stored progress, begun at %s, is given up",
            self._app,
            readable_start(start),
            deployment,
            readable_start(before),
        )

    def listed(self, listed: Iterable[Shard]) -> None:
        for line in self._reshards.listed(listed, self._stream):
            _log.info("%s", line)

    def acquired(self, positions: Sequence[tuple[str, Position]], missing: Collection[str]) -> None:
        ours = {shard_id for shard_id, _ in positions}
        taken_over, taken = ours & self._waited_for, ours - self._waited_for
        if taken:
            _log.info("acquired %s", of_stream(taken, self._stream))
        if taken_over:
            _log.info("took over %s", of_stream(taken_over, self._stream))
        for shard_id, position in positions:
            _log.debug("%s is read from %s", shard_id, readable(position))
        news = set(missing) - self._waited_for
        if news:
            _log.info("waits for the old owner of %s to let go", of_stream(news, self._stream))
        self._waited_for = set(missing)

    def assigned(self, before: Assignment, assignment: Assignment) -> None:
        moved = [
            shard_id for shard_id, owner in assignment.owners.items() if before.owners.get(shard_id) != owner
        ]
        _log.info(
            "assigned %s of %s to %s: %s new or moved (assignment %d)",
            shards(len(assignment.owners)),
            self._stream,
            f"{len(assignment.members)} member{'' if len(assignment.members) == 1 else 's'}",
            shards(len(moved)),
            assignment.epoch,
        )
        if assignment.level != before.level:
            _log.info("every member reads stored forms of level %d: they are written now", assignment.level)

    def follows(self, ours: Collection[str], leaving: Collection[str]) -> None:
        if not ours and not self._stands_by:
            _log.info("stands by: no shard of %s is assigned to this member", self._stream)
        self._stands_by = not ours
        news, self._leaving = set(leaving) - self._leaving, set(leaving)
        if news:
            _log.info("is to hand over %s", of_stream(news, self._stream))

    def handed_over(self, shard_ids: Collection[str], open_records: int) -> None:
        if not shard_ids:
            return
        _log.info("handed over %s", of_stream(shard_ids, self._stream))
        if open_records:
            _log.info(
                "%d records of these were not finished: their new owner hands them out again", open_records
            )

    def finished(self, shard_ids: Collection[str]) -> None:
        _log.info("finished %s: read to the end, and all of it is done", of_stream(shard_ids, self._stream))

    def looked(self, congested: Collection[str], *, is_full: bool) -> None:
        """Take in which shards have too much open, and whether retained records are at their limit."""
        paused, resumed = set(congested) - self._paused, self._paused - set(congested)
        if paused:
            _log.info(
                "paused reading %s (too many records, or gaps between them, are not finished)",
                of_stream(paused, self._stream),
            )
        if resumed:
            _log.info("resumed reading %s", of_stream(resumed, self._stream))
        if is_full != self._is_full:
            _log.info(
                "%s reading %s (the data kept of unfinished records %s max_buffered_bytes)",
                "paused" if is_full else "resumed",
                self._stream,
                "is near" if is_full else "is well below",
            )
        self._paused, self._is_full = set(congested), is_full

    def paused_by_operator(self, pause: OperatorPause, *, bounded: bool) -> None:
        """Take in what an operator has paused; ``bounded``: the run ends when it reaches its bound."""
        before, self._operator_pause = self._operator_pause, pause
        if pause == before:
            return
        if pause:
            what = self._stream if pause.everything else of_stream(pause.shards, self._stream)
            ends = "; the run does not end before that" if bounded else ""
            _log.warning(
                "paused by an operator: %s. `kinesis-spout resume --stream %s --app %s` lets it go on%s",
                what,
                self._stream,
                self._app,
                ends,
            )
        else:
            _log.info("resumed by an operator: %s", self._stream)

    def committed(self, commits: Sequence[PendingCommit], counters: Counters, now: float) -> None:
        self._commits += 1
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug(
                "commit of %s: %s", shards(len(commits)), named([commit.shard_id for commit in commits])
            )
        if self._pace.may_tell(now):
            _log.info("committed progress on %s %d times; %s", self._stream, self._commits, _totals(counters))
            self._commits = 0

    def stopped(self, error: BaseException | None, counters: Counters) -> None:
        if not self._is_running:
            return
        self._is_running = False
        _log.info("stopped %s: %s; %s", self._stream, _reason(error), _totals(counters))


def _reason(error: BaseException | None) -> str:
    if error is None:
        return "it was closed"
    # The text of foreign errors can quote a record.
    said = f": {error}" if isinstance(error, KinesisSpoutError) else ""
    return f"{type(error).__name__}{said}"


def _totals(counters: Counters) -> str:
    return (
        f"delivered {counters.delivered}, acked {counters.acked}, retried {counters.retried}, "
        f"timed out {counters.timed_out}, dead-lettered {counters.dead_lettered}"
    )
