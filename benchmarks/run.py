"""Runs the benchmarks, all or the named ones, and shows their figures.

python benchmarks/run.py [--quick] [--json] [decode | tracker | zookeeper | micro_batch | idle | ...]
"""

import argparse
import dataclasses
import importlib
import json
import multiprocessing
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, Final

from figures import Figure
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BENCHMARKS: Final = (
    "decode",
    "tracker",
    "zookeeper",
    "micro_batch",
    "idle",
    "low_rate",
    "sources",
    "structured",
)
_WIDTH_IN_FILES: Final = 150


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure kinesis-spout.")
    parser.add_argument(
        "names", nargs="*", metavar="name", help=f"which of {', '.join(BENCHMARKS)}; all if none"
    )
    parser.add_argument(
        "--quick", action="store_true", help="fewer repetitions and sizes: a look, not a figure"
    )
    parser.add_argument(
        "--json", action="store_true", help="one JSON document on standard output, for scripts"
    )
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"expected names among {', '.join(BENCHMARKS)}, got {', '.join(unknown)}")
    console = Console(stderr=arguments.json)
    if not console.is_terminal:
        console.width = _WIDTH_IN_FILES
    measured: dict[str, list[Figure]] = {}
    for name in arguments.names or BENCHMARKS:
        started = time.monotonic()
        with console.status(f"{name} ..."):
            measured[name] = _in_fresh_process(name, quick=arguments.quick)
        if not arguments.json:
            console.print(_table(name, measured[name], time.monotonic() - started))
    if arguments.json:
        json.dump(
            {name: [_document(figure) for figure in figures] for name, figures in measured.items()},
            sys.stdout,
            indent=2,
        )
        print()


def _in_fresh_process(name: str, *, quick: bool) -> list[Figure]:
    """Measure in a process that nothing has run in before: neither its heap nor its JVM is another's."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=spawn) as process:
        return process.submit(_measure, name, quick).result()


def _measure(name: str, quick: bool) -> list[Figure]:  # noqa: FBT001 - travels to another process
    figures: Callable[..., Iterator[Figure]] = importlib.import_module(f"bench_{name}").figures
    return list(figures(quick=quick))


def _document(figure: Figure) -> dict[str, object]:
    return dataclasses.asdict(figure) | {"goal": figure.goal, "met": figure.met}


def _table(name: str, figures: list[Figure], seconds: float) -> Table:
    table = Table(title=f"{name} ({seconds:.0f} s)", title_justify="left")
    table.add_column("what", overflow="fold")
    table.add_column("figure", justify="right")
    table.add_column("unit")
    table.add_column("times cheaper", justify="right")
    table.add_column("than")
    table.add_column("goal")
    table.add_column("note", overflow="fold")
    for figure in figures:
        ratio = "" if figure.ratio is None else f"{figure.ratio:,.{1 if figure.ratio >= 1 else 2}f}"
        verdict = {None: "", True: "[green]met[/]", False: "[red]missed[/]"}[figure.met]
        shown = "" if figure.value is None else f"{figure.value:,.{_decimals(figure.value)}f}"
        goal = f"{figure.goal} {verdict}".strip()
        table.add_row(figure.what, shown, figure.unit, ratio, figure.reference, goal, figure.note)
    return table


def _decimals(value: float) -> int:
    return 0 if value >= 100 else 1 if value >= 10 else 2


if __name__ == "__main__":
    main()
