"""``make fault-upgrade``: two releases share a stream under load and kills. Exit code 1 if anything failed.

Members of the old release are replaced one by one by those of the new one, and then the other way round, while the
producer goes on. Some are stopped in order and some are killed, and after each replacement another one is killed.
The run is judged as the fault suite judges.
"""

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Final

from rich.console import Console

from examples.demo.processes.endpoint import bypass_proxies
from tests.fault.suite.consumers.delivery_log import Kind
from tests.fault.suite.consumers.supervised import Release, SupervisedConsumer
from tests.fault.suite.director import Outcome
from tests.fault.suite.judgement.evidence import CLOSED, KILLED, Event, Evidence
from tests.fault.suite.judgement.report import Report, lines, reported
from tests.fault.suite.world import Plan, World, made
from tests.fault.upgrade.releases import installed, last_release
from tests.fault.upgrade.stores import unread_stores

_TICK_SECONDS: Final = 0.05
_WHOLE_SECONDS: Final = 180.0
"""Within which a replaced or killed member is there again: Spark takes long on a busy machine."""
_CALM_SECONDS: Final = 2.0
_MOST_GAP_SECONDS: Final = 30.0
"""The longest time without a handled record that passes: a session's end and a new owner, on a busy machine."""


class Upgrade:
    """Replaces the members of a world. Mutable; ``run`` once."""

    def __init__(self, world: World, show: Callable[[str], None]) -> None:
        self.world = world
        self.outcome = Outcome()
        self._show = show
        self._random = random.Random(world.plan.seed)
        self._replaced = 0

    def run(self, old: Release, new: Release) -> None:
        world = self.world
        for consumer in world.consumers:
            consumer.release = old
            consumer.start()
        self._await(lambda: world.is_complete, "every member to be there")
        began = time.monotonic()
        with world.prober, world.producer:
            for release in (new, old):
                self._show(f"to {release.name}: {len(world.producer.ledger):,} records")
                for consumer in self._random.sample(world.consumers, len(world.consumers)):
                    self._replace(consumer, release)
            self._rest(_CALM_SECONDS)
        self.outcome.fault_seconds = time.monotonic() - began
        ended = time.monotonic()
        self._await(lambda: world.is_settled, "everything to be finished")
        self.outcome.settle_seconds = time.monotonic() - ended
        for consumer in world.consumers:
            self._tick()
            consumer.end()

    def _replace(self, consumer: SupervisedConsumer, release: Release) -> None:
        consumer.release = release
        self._replaced += 1
        self._end(consumer, CLOSED if self._replaced % 2 else KILLED)
        others = [each for each in self.world.consumers if each is not consumer and not each.on_spark]
        if others:
            self._end(self._random.choice(others), KILLED)

    def _end(self, consumer: SupervisedConsumer, kind: str) -> None:
        pid, life = consumer.pid, consumer.life
        shards = tuple(self.world.history.owned_by(pid) if pid else ())
        event = Event(
            kind=kind, target=consumer.name, begin=time.time(), life=life, shards=shards, alone=True
        )
        if kind == KILLED:
            consumer.kill()
        else:
            consumer.stop_cleanly()
        self._await(
            lambda: consumer.life != life and self.world.is_complete, f"{consumer.name} to be there again"
        )
        self.world.sample()
        event.end = time.time()
        self.outcome.events.append(event)
        self.outcome.by_kind[kind] += 1
        self._show(f"{consumer.life} is of {consumer.release.name}, after: {kind}")
        self._rest(_CALM_SECONDS)

    def _rest(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._tick()

    def _await(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _WHOLE_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"expected {what} within {_WHOLE_SECONDS:g} s: {'; '.join(self.world.unfinished_shards())}"
                )
            self._tick()

    def _tick(self) -> None:
        self.world.look()
        if self.world.producer.error is not None:
            raise self.world.producer.error
        time.sleep(_TICK_SECONDS)


def longest_gap(evidence: Evidence) -> float:
    """Give the longest time in which no record was handled, in seconds."""
    handled = [entry.time for entry in evidence.entries if entry.kind is Kind.HANDLED]
    return max((after - before for before, after in pairwise(handled)), default=float("inf"))


def upgraded(
    plan: Plan, folder: Path, old: Release, new: Release, show: Callable[[str], None]
) -> tuple[Report, float]:
    """Run it; give the suite's report, with the longest gap among its violations if too long, and that gap."""
    with made(plan, folder) as world:
        upgrade = Upgrade(world, show)
        upgrade.run(old, new)
        evidence = world.evidence(upgrade.outcome.events)
        report = reported(world, upgrade.outcome, evidence)
        gap = longest_gap(evidence)
        report.violations["stops"] = (
            [f"nothing was handled for {gap:.1f} s"] if gap > _MOST_GAP_SECONDS else []
        )
        return report, gap


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make fault-upgrade ARGS=...", description=__doc__)
    parser.add_argument(
        "--old", default=last_release(), help="a tag or commit; the last release (%(default)s)"
    )
    parser.add_argument("--new", default="HEAD", help="a tag or commit (%(default)s)")
    parser.add_argument("--consumers", type=int, default=3, help="of the plain door (%(default)s)")
    parser.add_argument("--on-spark", type=int, default=1, help="of the micro-batch door (%(default)s)")
    parser.add_argument("--records-per-second", type=float, default=32.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--folder", type=Path, help="keep logs here (an empty folder)")
    return parser.parse_args()


def main() -> int:
    given = arguments()
    bypass_proxies()
    folder = (given.folder or Path(tempfile.mkdtemp(prefix="kinesis-spout-upgrade-"))).resolve()
    console = Console(stderr=True, soft_wrap=True)

    def show(text: str) -> None:
        console.print(f"  {text}", highlight=False)

    (folder / "run").mkdir(parents=True)
    show(f"installs {given.old[:12]} and {given.new}")
    old, new = (
        installed(commit, folder / which) for which, commit in (("old", given.old), ("new", given.new))
    )
    unread = unread_stores(folder / "stores", old, new, show)
    plan = Plan(
        seed=given.seed,
        events=0,
        seconds=0.0,
        consumers=given.consumers,
        on_spark=given.on_spark,
        records_per_second=given.records_per_second,
    )
    report, gap = upgraded(plan, folder / "run", old, new, show)
    report.violations["spool or keyed state not read"] = unread
    text = [
        f"from {old.name} to {new.name}, and back",
        *lines(report),
        f"longest time without progress: {gap:.1f} s",
    ]
    sys.stdout.write("\n".join(text) + "\n")
    if report.is_good and given.folder is None:
        shutil.rmtree(folder)
    elif not report.is_good:
        sys.stderr.write(f"The logs are in {folder}.\n")
    return 0 if report.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
