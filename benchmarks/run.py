"""Runs the benchmarks, all or the named ones, and shows their figures.

python benchmarks/run.py [--quick] [--json] [tracker | doors | doors:foreach_batch,1024,tls | ...]

A benchmark is a file ``bench_<name>.py`` with a function ``figures``; there is no other list of them.
"""

import argparse
import dataclasses
import importlib
import inspect
import json
import multiprocessing
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from figures import Figure, Step
from rich.console import Console
from rich.markup import escape
from rich.status import Status
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BENCHMARKS: Final = sorted(
    file.stem.removeprefix("bench_") for file in Path(__file__).parent.glob("bench_*.py")
)
_WIDTH_IN_FILES: Final = 150


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure kinesis-spout.")
    parser.add_argument(
        "names",
        nargs="*",
        metavar="name[:word,...]",
        help=f"which of {', '.join(BENCHMARKS)}; all if none. Words choose a part, where a benchmark has parts",
    )
    parser.add_argument(
        "--quick", action="store_true", help="fewer repetitions and sizes: a look, not a figure"
    )
    parser.add_argument(
        "--json", action="store_true", help="one JSON document on standard output, for scripts"
    )
    arguments = parser.parse_args()
    chosen = [name.partition(":") for name in arguments.names or BENCHMARKS]
    unknown = [name for name, _, _ in chosen if name not in BENCHMARKS]
    if unknown:
        parser.error(f"expected names among {', '.join(BENCHMARKS)}, got {', '.join(unknown)}")
    console = Console(stderr=arguments.json)
    if not console.is_terminal:
        console.width = _WIDTH_IN_FILES
    measured: dict[str, list[Figure]] = {}
    for name, _, words in chosen:
        started = time.monotonic()
        figures = measured.setdefault(name, [])
        try:
            _measure_apart(name, words, quick=arguments.quick, figures=figures)
        finally:  # what was measured before a failure is shown as well
            if not arguments.json:
                console.print(_table(name, figures, time.monotonic() - started))
    if arguments.json:
        json.dump(
            {name: [_document(figure) for figure in figures] for name, figures in measured.items()},
            sys.stdout,
            indent=2,
        )
        print()


def _measure_apart(name: str, words: str, *, quick: bool, figures: list[Figure]) -> None:
    """Measure in a process that nothing has run in before: neither its heap nor its JVM is another's.

    Adds each figure to ``figures`` as it comes, and tells on standard error what is being done.
    """
    spawn = multiprocessing.get_context("spawn")
    news, sender = spawn.Pipe(duplex=False)
    progress = Progress(name)
    with (
        progress,
        ProcessPoolExecutor(
            max_workers=1, mp_context=spawn, initializer=_send_to, initargs=(sender,)
        ) as process,
    ):
        done = process.submit(_measure, name, words, quick)
        done.add_done_callback(lambda _: sender.send(None))
        while (found := news.recv()) is not None:
            progress.show(found)
            if isinstance(found, Figure):
                figures.append(found)
        done.result()


_sender: Connection | None = None
"""In the process that measures: to the one that shows."""


def _send_to(sender: Connection) -> None:
    global _sender  # noqa: PLW0603 - a process pool has no other way to its processes
    _sender = sender


def _measure(name: str, words: str, quick: bool) -> None:  # noqa: FBT001 - travels to another process
    assert _sender is not None
    figures: Callable[..., Iterator[Figure | Step]] = importlib.import_module(f"bench_{name}").figures
    only = {"only": words.split(",")} if words else {}
    if only and "only" not in inspect.signature(figures).parameters:
        raise ValueError(f"expected the name {name!r} alone, got {name}:{words}: it has no parts to choose")
    for found in figures(quick=quick, **only):
        _sender.send(found)


class Progress(AbstractContextManager["Progress"]):
    """Tells on standard error what is being measured: in one line on a terminal, else in a line each."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._started = time.monotonic()
        self._console = Console(stderr=True)
        self._status = Status(f"{name} ...", console=self._console)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._status.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._status.stop()

    def show(self, found: Figure | Step) -> None:
        """Tell what is done next, or what came of it."""
        seconds = time.monotonic() - self._started
        if isinstance(found, Step):
            text = f"{found.what} ..."
        else:
            text = f"{found.what}: {_shown(found.value)} {found.unit}"
        line = f"{self._name}, {seconds:.0f} s: {text}"
        if self._console.is_terminal:
            self._status.update(escape(line))
        else:
            print(line, file=sys.stderr, flush=True)


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
        goal = f"{figure.goal} {verdict}".strip()
        table.add_row(
            figure.what, _shown(figure.value), figure.unit, ratio, figure.reference, goal, figure.note
        )
    return table


def _shown(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.{0 if value >= 100 else 1 if value >= 10 else 2}f}"


if __name__ == "__main__":
    main()
