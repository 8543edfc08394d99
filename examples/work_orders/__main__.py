"""``python -m examples.work_orders``: allocators that lose their office within a unit, and wake up later.

That is worse than a kill: a killed leader writes nothing more. These sleep over the end of their session with a
unit that is decided and not written, and write it when another leader is at work. The register must refuse it.
"""

import logging
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

from examples.work_orders.allocator import Allocator
from examples.work_orders.register import Register, TermOver
from kinesis_spout import KinesisSpout
from kinesis_spout.recipes import LeaderCareer, Term
from kinesis_spout.testing import InMemoryOffice, InMemoryStream, InMemoryZooKeeper, in_memory_ports

RULES: Final = 300
DEVICES: Final = ("edge-1", "edge-2", "edge-3")
CHANGES: Final = 5
_STREAM: Final = "orders"
_TROUBLE: Final = 0.5
"""How often a unit meets it, until there were ``CHANGES``."""
_DEADLINE_SECONDS: Final = 60.0


class Company:
    """The candidates, and the trouble they are in. Mutable, thread-safe."""

    def __init__(self, path: Path, changes: int) -> None:
        self._path = path
        self._stream, self._zookeeper = InMemoryStream(_STREAM, shards=2), InMemoryZooKeeper()
        self._office = InMemoryOffice()
        self._changes = changes
        self._chance = random.Random()
        self._changed = threading.Condition()
        self._newest_token = 0
        self._members: dict[str, str] = {}
        """What each candidate's spout is called among the readers of the orders."""
        self.refused: list[str] = []
        """Writes that the register refused."""
        self._careers: list[LeaderCareer] = []
        self._threads: list[threading.Thread] = []

    def order(self, rule: str) -> None:
        """Put an order on the stream."""
        self._stream.put(rule.encode(), rule)

    def start(self, candidates: int) -> None:
        """Let so many processes stand for election."""
        for number in range(1, candidates + 1):
            name = f"allocator-{number}"
            thread = threading.Thread(target=self._stand, args=(name,), name=name)
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        """Let everybody end in order."""
        for career in list(self._careers):
            career.stop()
        for thread in self._threads:
            thread.join()

    def _stand(self, name: str) -> None:
        """Be a process that begins anew whenever it was refused, as a supervisor has it do."""
        register = Register(self._path)
        allocator = Allocator(
            register, DEVICES, lambda: self._spout(name), lambda term: self._trouble(name, term)
        )
        while True:
            career = LeaderCareer(allocator, self._office.candidate(name), idle_seconds=0.01)
            self._careers.append(career)
            try:
                career.run()
                break
            except TermOver as error:
                self.refused.append(f"{name}: {error}")
        register.close()

    def _spout(self, name: str) -> KinesisSpout:
        ports = in_memory_ports(self._stream, self._zookeeper)
        self._members[name] = ports.coordinator.member
        return KinesisSpout(
            ports=ports,
            stream=_STREAM,
            app="allocator",
            initial_position="trim_horizon",
            # That a leader lost its office says nothing against the order it held: try it until it is done.
            retry_limit=None,
        )

    def _trouble(self, name: str, term: Term) -> None:
        """Lose the session within a unit, sometimes, and sleep until another leader is about to write."""
        with self._changed:
            self._newest_token = max(self._newest_token, term.token)
            self._changed.notify_all()
            if self._changes == 0 or self._chance.random() > _TROUBLE:
                return
            self._changes -= 1
            self._zookeeper.expire(self._members[name])  # the spout's part of the session
            self._office.expire(name)
            if not self._changed.wait_for(lambda: self._newest_token > term.token, _DEADLINE_SECONDS):
                raise SystemExit("expected another leader, nobody came")


def await_that(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition, for a limited time."""
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"waited {_DEADLINE_SECONDS:g} s in vain until {what}")
        time.sleep(0.01)


def main() -> None:
    """Order rules, some of them twice, let leaders lose their office, and check every allocation."""
    logging.getLogger("kinesis_spout").setLevel(logging.ERROR)  # what is lost is lost on purpose
    rules = [f"rule-{number:03}" for number in range(RULES)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "register.db"
        register, company = Register(path), Company(path, CHANGES)
        company.start(3)
        for rule in rules:
            company.order(rule)
        for rule in rules[::10]:
            company.order(rule)
        try:
            await_that(lambda: len(register.allocated()) == RULES, "every rule has a slot")
        finally:
            company.stop()
        allocations = register.allocated()
        register.close()
    by_device = Counter(slot.device for _, slot, _ in allocations)
    slots, tokens = {slot for _, slot, _ in allocations}, [token for _, _, token in allocations]
    print(f"{RULES} rules ordered, {len(rules[::10])} of them twice; 3 candidates, one allocates at a time.")
    print(f"{CHANGES} leaders lost their office within a unit, and wrote when they woke up:")
    print(f"  {len(company.refused)} of these writes were refused by the register.")
    print(f"Slots used: {', '.join(f'{name} {count}' for name, count in sorted(by_device.items()))}.")
    if sorted(rule for rule, _, _ in allocations) != rules or len(slots) != RULES:
        sys.exit("expected one slot for each rule and one rule for each slot")
    if (
        tokens != sorted(tokens)
        or len(company.refused) != CHANGES
        or max(by_device.values()) > RULES // 3 + 1
    ):
        sys.exit("expected terms one after the other, all late writes refused, and devices filled evenly")
    print("Checked: nothing was allocated twice, nothing was left out, terms never mixed.")


if __name__ == "__main__":
    main()
