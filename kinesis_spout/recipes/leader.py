"""Work that one process does at a time, and another takes over: ``LeaderCareer``, ``stand_for`` an election.

A candidate waits, leads for a term, hands over, and waits again:

    waiting --elected--> inaugurate --> execute, execute, ... --stopped, lost, failed--> hand_over --> waiting

Between two units of work it checks that its term lasts. It does not interrupt a unit: keep units shorter than
a third of the session time-out, check ``term.is_certain`` before an effect that must not happen twice, or
give ``term.token`` to a store that refuses smaller ones. If none of this is possible, a new leader can wait
for the last unit of the one before it: ``last_unit_seconds``.
"""

import logging
import threading
from contextlib import ExitStack, closing
from enum import Enum
from typing import Final, Protocol, Unpack

from kinesis_spout.model.clock import Clock, SystemClock
from kinesis_spout.model.errors import StoreUnavailable, refuse_other_kind
from kinesis_spout.ports import Elected, Election
from kinesis_spout.ports.leadership import Term
from kinesis_spout.processes.stop_signals import stop_signals
from kinesis_spout.settings import ZooKeeperKeywords
from kinesis_spout.settings.zookeeper import started_session
from kinesis_spout.zookeeper import ZooKeeperElection, unique_member_name
from kinesis_spout.zookeeper.nodes import make_shared
from kinesis_spout.zookeeper.paths import office, offices

__all__ = ["HandOver", "Leader", "LeaderCareer", "Term", "stand_for"]

_log = logging.getLogger(__name__)

_PAUSE_SECONDS: Final = 0.2
"""Between two attempts to reach ZooKeeper, and between two looks at the last unit of the leader before."""


class HandOver(Enum):
    """Why a term ends."""

    STOPPED = "stopped"
    """By ``stop``, SIGTERM or Ctrl-C. The term is still certain, or was a moment ago: finish what has begun."""
    LOST = "lost"
    """ZooKeeper says so, or has not answered in time. Another process may lead: write nothing more."""
    FAILED = "failed"
    """``inaugurate`` or ``execute`` raised; ``run`` raises it once the term is handed over."""


class Leader(Protocol):
    """The work that one process does at a time. All three are called from the thread that called ``run``."""

    def inaugurate(self, term: Term) -> None:
        """Begin a term: read the state that the leader before has left."""
        ...

    def execute(self) -> bool:
        """Do one bounded unit of work. Return False if there is nothing more to do for now."""
        ...

    def hand_over(self, reason: HandOver) -> None:
        """End the term: finish what can be. Called after each ``inaugurate``, even one that raised."""
        ...


class LeaderCareer:
    """Runs a leader's work whenever this process is elected. For one use.

    Args:
        leader: the work.
        election: where this process stands for election; closed with the career.
        idle_seconds: how long to wait after a unit that had nothing to do.
        last_unit_seconds: how long a new leader waits for a unit that the leader before may still be doing,
            also if that one was killed. 0: not at all.
        clock: for the monotonic time.
    """

    def __init__(
        self,
        leader: Leader,
        election: Election,
        *,
        idle_seconds: float = 1.0,
        last_unit_seconds: float = 0.0,
        clock: Clock | None = None,
    ) -> None:
        refuse_other_kind("leader", "a Leader", leader, "inaugurate", "execute", "hand_over")
        refuse_other_kind(
            "election", "an Election, as stand_for(name) opens it", election, "campaign", "confirm"
        )
        self._leader = leader
        self._election = election
        self._idle_seconds = idle_seconds
        self._last_unit_seconds = last_unit_seconds
        self._clock: Clock = clock or SystemClock()
        self._stopping = threading.Event()
        self._term: Term | None = None

    @property
    def term(self) -> Term | None:
        """The present term; None while this process waits."""
        return self._term

    def run(self) -> None:
        """Stand for election and lead, repeatedly, until ``stop``. Blocks.

        In the main thread SIGTERM and Ctrl-C call ``stop``. A second Ctrl-C does not wait for the present unit; a
        handler of the program's own is left alone.

        Raises:
            StoreError: ZooKeeper refuses.
            Exception: what the leader raised, after the term was handed over.
        """
        with closing(self._election), stop_signals() as stop, stop.calling(self.stop):
            while not self._stopping.is_set():
                try:
                    elected = self._election.campaign()
                except StoreUnavailable as error:
                    _log.warning("%s; stands for election again", error)
                    self._stopping.wait(_PAUSE_SECONDS)
                    continue
                if elected is not None:
                    self._hold_office(elected)

    def stop(self) -> None:
        """End the career after the present unit of work. Returns at once; may be called from any thread."""
        self._stopping.set()
        self._election.cancel()

    def _hold_office(self, elected: Elected) -> None:
        term = Term(elected, self._election, self._clock)
        try:
            if self._await_last_unit(term, elected):
                self._serve(term)
        finally:
            self._election.resign(elected)

    def _await_last_unit(self, term: Term, elected: Elected) -> bool:
        """Wait for the last unit of the leader before; returns whether the term still lasts."""
        if not self._last_unit_seconds:
            return True
        until = self._clock.monotonic() + self._last_unit_seconds
        try:
            while self._election.is_occupied() and self._clock.monotonic() < until:
                if self._stopping.is_set() or not term.lasts():
                    return False
                self._clock.sleep(_PAUSE_SECONDS)
            self._election.occupy(elected)
        except StoreUnavailable as error:
            _log.warning("%s; stands for election again", error)
            return False
        return term.lasts()

    def _serve(self, term: Term) -> None:
        _log.info("leads %s: term %d begins", self._election.name, term.token)
        reason = HandOver.FAILED
        self._term = term
        try:
            self._leader.inaugurate(term)
            reason = self._execute(term)
        except KeyboardInterrupt:
            reason = HandOver.STOPPED
            raise
        finally:
            self._term = None
            try:
                self._leader.hand_over(reason)
            finally:
                term.end()
                _log.info("leads %s no longer: term %d %s", self._election.name, term.token, reason.value)

    def _execute(self, term: Term) -> HandOver:
        while term.lasts():
            if self._stopping.is_set():
                return HandOver.STOPPED
            if not self._leader.execute():
                self._rest(term)
        return HandOver.LOST

    def _rest(self, term: Term) -> None:
        """Wait, in pieces so short that a lost term is noticed."""
        until = self._clock.monotonic() + self._idle_seconds
        while term.is_certain and (rest := until - self._clock.monotonic()) > 0:
            if self._stopping.wait(min(rest, _PAUSE_SECONDS)) or not term.lasts():
                return


def stand_for(name: str, **zookeeper: Unpack[ZooKeeperKeywords]) -> Election:
    """Connect to ZooKeeper to stand for election there; give the result to a ``LeaderCareer``.

    Args:
        name: of the work: one of all processes that stand for it leads.
        zookeeper: the address and our credentials: ``zookeeper``, ``session_timeout_seconds``, and the
            settings of ``SpoutConfig`` whose names begin with ``zookeeper_``. A leader that was killed keeps
            its term for the session time-out; one without a connection gives it up after two thirds of that.

    Raises:
        InvalidConfig: an argument is invalid.
        StoreUnavailable, StoreError: no ZooKeeper answers, it refuses us, or the embedded one does not start.
    """
    with ExitStack() as opened:
        root, session = started_session(name, zookeeper, opened)
        make_shared(session, offices(root))
        return ZooKeeperElection(
            name, office(root, name), session, unique_member_name(), opened.pop_all().close
        )
