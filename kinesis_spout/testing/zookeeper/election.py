"""An office in memory, for which several candidates stand, with sessions that end and connections that break.

office = InMemoryOffice()
one, two = office.candidate("one"), office.candidate("two")
office.cut_off("one")       # it hears nothing any more
office.expire("one")        # and ZooKeeper has ended its session
"""

import itertools
import threading
from dataclasses import dataclass

from kinesis_spout.model.clock import Clock, SystemClock
from kinesis_spout.model.errors import StoreUnavailable
from kinesis_spout.ports import Elected


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidacy:
    member: str
    token: int

    @property
    def node(self) -> str:
        return f"/office/{self.token}"


class InMemoryOffice:
    """The state that the candidates share. Mutable, thread-safe.

    Args:
        session_timeout_seconds: as the candidates see it; nothing here expires by itself.
        clock: the candidates'.
    """

    def __init__(self, *, session_timeout_seconds: float = 6.0, clock: Clock | None = None) -> None:
        self.session_timeout_seconds = session_timeout_seconds
        self.clock: Clock = clock or SystemClock()
        self.changed = threading.Condition()
        self.queue: list[_Candidacy] = []
        self.occupied_by: int | None = None
        self.unreachable: set[str] = set()
        self._tokens = itertools.count(1)

    def candidate(self, member: str) -> "InMemoryElection":
        """Let another process stand for election."""
        return InMemoryElection(self, member)

    def expire(self, member: str) -> None:
        """End a candidate's session: its candidacy is gone."""
        with self.changed:
            self.queue = [each for each in self.queue if each.member != member]
            self.changed.notify_all()

    def cut_off(self, member: str) -> None:
        """Let a candidate reach nobody any more."""
        with self.changed:
            self.unreachable.add(member)

    def reconnect(self, member: str) -> None:
        """Undo ``cut_off``."""
        with self.changed:
            self.unreachable.discard(member)

    def check_reachable(self, member: str) -> None:
        if member in self.unreachable:
            raise StoreUnavailable(f"{member} was cut off")

    def queue_up(self, member: str) -> _Candidacy:
        """Put a candidate at the end of the queue. Call it with ``changed`` held."""
        candidacy = _Candidacy(member=member, token=next(self._tokens))
        self.queue.append(candidacy)
        return candidacy


class InMemoryElection:
    """The port ``Election``, for one candidate of an ``InMemoryOffice``. Mutable."""

    def __init__(self, office: InMemoryOffice, member: str) -> None:
        self._office = office
        self._member = member
        self._left: list[Elected] = []
        self._is_cancelled = False

    @property
    def name(self) -> str:
        return "office"

    @property
    def session_timeout_seconds(self) -> float:
        return self._office.session_timeout_seconds

    def campaign(self) -> Elected | None:
        office = self._office
        with office.changed:
            office.check_reachable(self._member)
            while self._left:
                self._clear(self._left.pop())
            if self._is_cancelled:
                return None
            candidacy = office.queue_up(self._member)
            office.changed.wait_for(
                lambda: self._is_cancelled or candidacy not in office.queue or office.queue[0] == candidacy,
                self.session_timeout_seconds,
            )
            if not self._is_cancelled and office.queue and office.queue[0] == candidacy:
                return Elected(token=candidacy.token, node=candidacy.node, asked_at=office.clock.monotonic())
            office.queue = [each for each in office.queue if each != candidacy]
            office.changed.notify_all()
            return None

    def confirm(self, elected: Elected, wait_seconds: float) -> float | None:
        office = self._office
        asked_at = office.clock.monotonic()
        with office.changed:
            if self._member in office.unreachable:
                office.clock.sleep(wait_seconds)
                office.check_reachable(self._member)
            return asked_at if any(each.token == elected.token for each in office.queue) else None

    def resign(self, elected: Elected) -> None:
        with self._office.changed:
            if self._member in self._office.unreachable:
                self._left.append(elected)
            else:
                self._clear(elected)

    def _clear(self, elected: Elected) -> None:
        office = self._office
        if office.occupied_by == elected.token:
            office.occupied_by = None
        office.queue = [each for each in office.queue if each.token != elected.token]
        office.changed.notify_all()

    def occupy(self, elected: Elected) -> None:
        with self._office.changed:
            self._office.check_reachable(self._member)
            if any(each.token == elected.token for each in self._office.queue):
                self._office.occupied_by = elected.token

    def is_occupied(self) -> bool:
        with self._office.changed:
            self._office.check_reachable(self._member)
            return self._office.occupied_by is not None

    def cancel(self) -> None:
        with self._office.changed:
            self._is_cancelled = True
            self._office.changed.notify_all()

    def close(self) -> None:
        self._office.expire(self._member)
