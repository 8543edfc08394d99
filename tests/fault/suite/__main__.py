"""``make fault``: the fault suite, as long as you like. Exit code 1 if anything was not as promised."""

import argparse
import faulthandler
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final, Self

from rich.console import Console

from examples.demo.processes.endpoint import bypass_proxies
from tests.fault.suite.director import Director
from tests.fault.suite.failure_rates import MIXED, failure_rates
from tests.fault.suite.judgement.report import Report, lines, reported
from tests.fault.suite.trials.plan import FULL, SLOW, Door, TrialPlan
from tests.fault.suite.trials.report import TrialReport, trial_lines
from tests.fault.suite.trials.run import trial_world
from tests.fault.suite.world import Plan, made

_UPDATE_SECONDS = 0.5
_LINE_SECONDS = 10.0
GROUP: Final = "group"
"""Consumers in plain Python and on Spark that share a stream, under kills: no door by itself."""
EVERY_DOOR: Final = (GROUP, *Door)


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
    parser.add_argument(
        "--break-livez",
        action="store_true",
        help="have /livez ask ZooKeeper, as it must not: such a run is no good",
    )
    parser.add_argument("--fan-out", action="store_true", help="Kinesis pushes: consumer_mode=efo")
    parser.add_argument(
        "--doors",
        type=_doors,
        default=list(EVERY_DOOR),
        help=f"which are tried, of {','.join(EVERY_DOOR)}; {GROUP} is consumers that share a stream under kills",
    )
    parser.add_argument(
        "--rate",
        type=_paces,
        default=(FULL, SLOW),
        help="of the records of single doors: full, 1 (a second), or both (mixed)",
    )
    parser.add_argument("--records", type=int, default=400, help="of a phase of a single door (%(default)s)")
    parser.add_argument("--folder", type=Path, help="keep logs here (an empty folder)")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def _paces(text: str) -> tuple[float | None, ...]:
    known = {"full": (FULL,), "1": (SLOW,), "mixed": (FULL, SLOW)}
    if text not in known:
        raise ValueError(f"expected full, 1 or mixed, got {text}")
    return known[text]


def _doors(text: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in EVERY_DOOR:
            raise argparse.ArgumentTypeError(f"expected doors of {', '.join(EVERY_DOOR)}, got {name!r}")
    return names


def _setting(text: str) -> tuple[str, str | int]:
    name, value = text.split("=", 1)
    return name, int(value) if value.isdigit() else value


def group_under_faults(given: argparse.Namespace, folder: Path) -> Report:
    """Have consumers share a stream while processes, ZooKeeper and Kinesis fail."""
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
        breaks_livez=given.break_livez,
        may_mount=True,
        settings=dict(map(_setting, given.set)) | ({"consumer_mode": "efo"} if given.fan_out else {}),
    )
    with made(plan, folder) as world, Progress() as show:
        outcome = Director(world, show).run()
        return reported(world, outcome, world.evidence(outcome.events))


def doors_at_rates(given: argparse.Namespace, folder: Path) -> TrialReport:
    """Try each door alone while its records, and calls of Kinesis, fail at random rates."""
    plan = TrialPlan(
        seed=given.seed,
        doors=[Door(name) for name in given.doors if name != GROUP],
        rates=given.failures,
        paces=given.rate,
        records=given.records,
        shards=given.shards,
    )
    console = Console(stderr=True, soft_wrap=True)
    with trial_world(plan, folder, lambda text: console.print(f"  {text}", highlight=False)) as world:
        return TrialReport(seed=given.seed, trials=world.run())


def main() -> int:
    given = arguments()
    faulthandler.register(
        signal.SIGTERM, chain=True
    )  # a run that is ended by a time limit says where it stood
    bypass_proxies()
    folder = (given.folder or Path(tempfile.mkdtemp(prefix="kinesis-spout-faults-"))).resolve()
    group, trials = folder / GROUP, folder / "doors"
    document: dict[str, Any] = {"seed": given.seed}
    is_good, text = True, []
    if GROUP in given.doors:
        group.mkdir(parents=True)
        report = group_under_faults(given, group)
        document |= report.as_document()
        is_good = report.is_good
        text += lines(report)
    if given.doors != [GROUP]:
        trials.mkdir(parents=True)
        trial_report = doors_at_rates(given, trials)
        document |= {"trials": trial_report.as_document(), "good": is_good and trial_report.is_good}
        is_good = is_good and trial_report.is_good
        text += trial_lines(trial_report)
    sys.stdout.write(f"{json.dumps(document, indent=2) if given.json else chr(10).join(text)}\n")
    if is_good and given.folder is None:
        shutil.rmtree(folder)
    elif not is_good:
        sys.stderr.write(f"The logs are in {folder}.\n")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
