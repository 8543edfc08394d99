"""``make fault``: the fault suite, as long as you like. Exit code 1 if anything was not as promised."""

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Self

from rich.console import Console

from examples.demo.processes.endpoint import bypass_proxies
from tests.fault.suite.director import Director
from tests.fault.suite.failure_rates import MIXED, failure_rates
from tests.fault.suite.judgement.report import lines, reported
from tests.fault.suite.world import Plan, made

_UPDATE_SECONDS = 0.5
_LINE_SECONDS = 10.0


class Progress:
    """A line that changes on a terminal, a line every few seconds anywhere else. Mutable; a context manager."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, soft_wrap=True)
        self._status = self._console.status("starting")
        self._show_at = 0.0

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._status.stop()

    def __call__(self, director: Director) -> None:
        now = time.monotonic()
        if now < self._show_at:
            return
        world = director.world
        owned = sum(len(world.history.owned_by(each.pid)) for each in world.consumers if each.pid)
        text = (
            f"{director.elapsed:6.0f} s  {director.phase}: {director.events:,} faults, "
            f"{len(world.producer.ledger):,} records, {owned} shards owned"
        )
        if self._console.is_terminal:
            self._status.update(text)
            self._show_at = now + _UPDATE_SECONDS
        else:
            self._console.print(text, highlight=False)
            self._show_at = now + _LINE_SECONDS


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make fault ARGS=...", description=__doc__)
    parser.add_argument("--events", type=int, default=200, help="stop after so many faults (%(default)s)")
    parser.add_argument("--seconds", type=float, default=600.0, help="and after so long (%(default)g)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument(
        "--pace", type=float, default=1.0, help="of the pauses between faults: 0.5 halves them"
    )
    parser.add_argument("--consumers", type=int, default=3, help="of the plain door (%(default)s)")
    parser.add_argument("--on-spark", type=int, default=1, help="of the micro-batch door (%(default)s)")
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--session-seconds", type=float, default=3.0)
    parser.add_argument("--records-per-second", type=float, default=32.0)
    parser.add_argument(
        "--failures",
        type=failure_rates,
        default=MIXED,
        help='of handlers, by chance: "5%%", "0.1%%,30%%", or all of the usual rates in turn (mixed)',
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="SETTING=VALUE", help="of the consumers"
    )
    parser.add_argument("--fan-out", action="store_true", help="Kinesis pushes: consumer_mode=efo")
    parser.add_argument("--folder", type=Path, help="keep logs here (an empty folder)")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def _setting(text: str) -> tuple[str, str | int]:
    name, value = text.split("=", 1)
    return name, int(value) if value.isdigit() else value


def main() -> int:
    given = arguments()
    plan = Plan(
        seed=given.seed,
        events=given.events,
        seconds=given.seconds,
        pace=given.pace,
        consumers=given.consumers,
        on_spark=given.on_spark,
        shards=given.shards,
        session_seconds=given.session_seconds,
        records_per_second=given.records_per_second,
        failure_rates=given.failures,
        every_kind=True,
        may_mount=True,
        settings=dict(map(_setting, given.set)) | ({"consumer_mode": "efo"} if given.fan_out else {}),
    )
    bypass_proxies()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="kinesis-spout-faults-"))
    folder.mkdir(parents=True, exist_ok=True)
    with made(plan, folder.resolve()) as world, Progress() as show:
        outcome = Director(world, show).run()
        report = reported(world, outcome, world.evidence(outcome.events))
    text = json.dumps(report.as_document(), indent=2) if given.json else "\n".join(lines(report))
    sys.stdout.write(f"{text}\n")
    if report.is_good and given.folder is None:
        shutil.rmtree(folder)
    elif not report.is_good:
        sys.stderr.write(f"The logs are in {folder}.\n")
    return 0 if report.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
