"""The table of behaviours that a test switches on: at a rate or at a moment, by operation, stream and shard.

A behaviour is drawn only where it can happen: an empty page in place of records, for example. So what is counted
did happen, and the same seed draws the same.
"""

import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple

EVENT: Final = "SubscribeToShardEvent"
"""The operation of an event that is pushed, whose own operation is SubscribeToShard."""


class Behaviour(StrEnum):
    """What a call can meet. In brackets: the arguments of a switch, with their defaults."""

    # The service answers with an error, and does nothing.
    ERROR = "error of AWS"
    """(``code``, ``status`` 400, ``message``.) Of an event: as an exception in the stream."""
    EXPIRED_ITERATORS = "iterators expired"
    """Those that were given out before it was switched on."""
    EXPIRED_TOKENS = "tokens of listings expired"
    LIMITS = "limits of AWS"
    """Without it nothing is limited."""
    PARTLY_REFUSED = "puts refused in part"
    """(``share`` 0.5 of the records.)"""

    # The service answers well, but not as expected.
    EMPTY_PAGES = "empty pages in a backlog"
    """(``behind_millis`` 86,400,000)"""
    FEWER_RECORDS = "fewer records than asked"
    NO_NEXT_ITERATOR = "no next iterator in an open shard"
    """The records of the page come."""
    PAGE_OF_OTHERS = "the page of another shard"
    """The last one that another shard of any stream got."""
    OLD_LISTS = "listings behind the truth"
    """A shard is listed as it was before the last reshard."""
    UPDATING = "stream being changed"
    """(``status`` UPDATING.) DescribeStreamSummary says so, and a change is refused."""

    # Something on the way answers instead; (``takes_effect`` False: the service does not get the call).
    HTML = "page of a proxy"
    """(``status`` 502)"""
    REDIRECT = "redirect"
    """(``status`` 307, ``location``)"""
    REPLY = "reply as given"
    """(``status`` 200, ``body`` of base64, ``content_type`` that of JSON, ``headers``)"""
    RAW = "bytes as given"
    """(``body`` of base64, ``closes`` True)"""

    # The answer is right, but for how it comes.
    CUT = "answers cut off"
    """(``sent`` 0.5: a share of the bytes, or a number of bytes.) The connection ends."""
    RESET = "connections reset"
    """(``sent`` 0) as for ``CUT``; the connection is reset."""
    SLOW = "slow answers"
    """(``seconds`` 1.5, ``parts`` 10)"""
    SILENT = "no answer"
    """(``seconds`` 60)"""
    ENDLESS = "endless answers"
    """(``pause_seconds`` 0.02, ``seconds`` 60) A byte at a time, until the caller hangs up."""
    OVERSIZED = "oversized answers"
    """(``declared`` 1 GiB) The head promises so many bytes; the answer and an end come."""
    SURPLUS = "surplus answers"
    """(``pause_seconds`` 0) The page of another shard, whole, behind the right one."""
    UNASKED_408 = "408 while a connection rests"
    """(``pause_seconds`` 0.02) Behind a right answer comes "408, close", as of a load balancer."""
    ENDED = "subscriptions ended"
    """Of an event: the stream ends in order in its place, as after five minutes."""
    CORRUPT = "corrupt answers"
    """A bit of the answer is another. Of an event: its checksum is wrong."""


BEFORE: Final = (Behaviour.ERROR,)
"""In the place of what the service does."""
INSTEAD: Final = (Behaviour.HTML, Behaviour.REDIRECT, Behaviour.REPLY, Behaviour.RAW)
ON_THE_WAY: Final = (
    Behaviour.CUT,
    Behaviour.RESET,
    Behaviour.SLOW,
    Behaviour.SILENT,
    Behaviour.ENDLESS,
    Behaviour.OVERSIZED,
    Behaviour.SURPLUS,
    Behaviour.UNASKED_408,
    Behaviour.CORRUPT,
)
ANSWERS_LOST: Final = frozenset(
    {
        Behaviour.CUT,
        Behaviour.RESET,
        Behaviour.SILENT,
        Behaviour.ENDLESS,
        Behaviour.OVERSIZED,
        Behaviour.CORRUPT,
    }
)
"""After these the call has taken effect, though its caller may not know."""


class Call(NamedTuple):
    """What a switch looks at."""

    operation: str
    stream: str
    """Its name; empty if the call names none."""
    shard_id: str


@dataclass(kw_only=True)
class Switch:
    """A behaviour that is on. Mutable: it counts."""

    behaviour: Behaviour
    rate: float = 1.0
    operations: frozenset[str] = frozenset()
    """Empty: all."""
    stream: str = ""
    shard_id: str = ""
    """Empty, as above: all."""
    after: int = 0
    """How many calls that it could have happened to pass first."""
    times: int | None = None
    """How often it happens; None: until it is switched off."""
    seed: str = ""
    how: Mapping[str, Any] = field(default_factory=dict)
    """The behaviour's own arguments."""
    chances: int = 0
    happened: int = 0
    since: float = field(default_factory=time.time)

    def __post_init__(self) -> None:
        self._random = random.Random(f"{self.seed}/{self.behaviour}")

    def is_for(self, call: Call) -> bool:
        return (
            (not self.operations or call.operation in self.operations)
            and self.stream in {"", call.stream}
            and self.shard_id in {"", call.shard_id}
        )

    def draw(self) -> bool:
        """Tell whether it happens to a call that it can happen to."""
        if self.times is not None and self.happened >= self.times:
            return False
        self.chances += 1
        if self.chances <= self.after or self._random.random() >= self.rate:
            return False
        self.happened += 1
        return True

    def number(self, name: str, default: float) -> float:
        return float(self.how.get(name, default))

    def share(self, name: str, default: float, of: int) -> int:
        """Return an argument that is a share of, or a number of, so many."""
        given = self.number(name, default)
        return min(of, int(given * of if given < 1 else given))


class Table:
    """What is on. Mutable; what is switched on first is drawn first."""

    def __init__(self) -> None:
        self._switches: list[Switch] = []
        self.happened: Counter[str] = Counter()
        """By behaviour, also of what was switched off."""
        self.expected = 0.0
        """How many were to happen on average, of those at a rate."""
        self.records_lost = 0
        """Records that were put by calls whose answers were lost on the way."""

    def switch_on(self, switch: Switch) -> None:
        self._switches.append(switch)

    def switch_off(self, behaviour: Behaviour | None = None) -> None:
        """Switch one behaviour off, or all."""
        self._switches = [each for each in self._switches if behaviour not in {None, each.behaviour}]

    def matching(self, call: Call) -> Iterator[Switch]:
        return (each for each in self._switches if each.is_for(call))

    def drawn(self, call: Call, *behaviours: Behaviour) -> Switch | None:
        """Draw whether one of these happens to a call now; the caller makes it happen."""
        for switch in self.matching(call):
            if switch.behaviour in behaviours:
                self.expected += switch.rate
                if switch.draw():
                    self.happened[switch.behaviour] += 1
                    return switch
        return None

    def is_on(self, call: Call, behaviour: Behaviour) -> Switch | None:
        """Return the switch of a behaviour that decides itself what it happens to; ``count`` it then."""
        return next((each for each in self.matching(call) if each.behaviour is behaviour), None)

    def count(self, switch: Switch) -> None:
        switch.happened += 1
        self.happened[switch.behaviour] += 1
