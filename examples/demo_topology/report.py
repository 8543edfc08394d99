"""The outcome as a newcomer reads it."""

from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from examples.demo_topology.outcome import Outcome

_SHOWN_WORDS: Final = 5


def print_report(console: Console, outcome: Outcome) -> None:
    """Print it, at 80 columns at most."""
    width = min(80, console.width)
    console.print()
    console.print(_happened(outcome), width=width)
    console.print()
    console.print(_counts(outcome), width=width)
    console.print()
    for name in outcome.missing:
        console.print(
            Text(f"Did not happen, although it should have: {name}.", style="bold red"), width=width
        )
    if outcome.wrong:
        console.print(
            Text(f"Wrong counts: of {len(outcome.wrong):,} of {_words(outcome):,} words.", style="bold red"),
            width=width,
        )
    if outcome.exit_code == 0:
        verdict = (
            "Every count is exact: each sentence counted once, however often it was tried. "
            f"{outcome.seconds:.0f} s in all."
        )
        console.print(Text(verdict, style="bold green"), width=width)
    if outcome.directory is None:
        console.print("Next: examples/topologies/word_count_state.py, and docs/how-to/topologies.md")
        console.print("To look at state, dead letters and logs: make demo-topology ARGS=--keep")
    else:
        console.print(Text(f"State, dead letters and logs are in {outcome.directory}"), soft_wrap=True)


def _happened(outcome: Outcome) -> Table:
    table = Table(
        title="What happened", title_justify="left", title_style="bold", show_edge=False, show_header=False
    )
    table.add_column(justify="right")
    table.add_column(overflow="fold")
    for count, what in _rows(outcome):
        table.add_row(count, Text(what))
    return table


def _rows(outcome: Outcome) -> list[tuple[str, str]]:
    rows = [
        (f"{outcome.sentences:,}", f"sentences put on a Kinesis stream over HTTP ({outcome.engine})"),
        (f"{outcome.failed_in_split:,}", "times split failed a sentence, before a word was counted"),
        (
            f"{outcome.failed_in_count:,}",
            "times count failed a word that it had counted: its sentence left no trace",
        ),
        (f"{outcome.retried:,}", "times a sentence was put back, to be tried again"),
        (
            f"{outcome.dead_lettered:,}",
            "sentences failed at every try: they are dead letters, and do not count",
        ),
    ]
    if outcome.killed_worker is not None:
        rows.append(
            ("1", f"Python worker (pid {outcome.killed_worker}) killed right after it had counted a word")
        )
    if outcome.kill is not None:
        killed = (
            f"driver (pid {outcome.kill.pid}) killed; the next one went on from the "
            f"{outcome.kill.committed_words:,} words that were stored, "
            f"{outcome.kill.resumed_seconds or 0:g} s later"
        )
        again = "sentences the killed driver had acked, but not stored: counted again, from the stored words"
        rows += [("1", killed), (f"{outcome.acked_again:,}", again)]
    return rows


def _counts(outcome: Outcome) -> Table:
    table = Table(
        title="The counts, beside a plain recount",
        title_justify="left",
        title_style="bold",
        show_edge=False,
    )
    table.add_column("word")
    table.add_column("in the state", justify="right")
    table.add_column("recounted", justify="right")
    most = sorted(outcome.recounted.items(), key=lambda each: (-each[1], each[0]))
    shown = dict.fromkeys([*list(outcome.wrong)[:_SHOWN_WORDS], *(word for word, _ in most[:_SHOWN_WORDS])])
    for word in shown:
        style = "bold red" if word in outcome.wrong else None
        counted, recounted = outcome.counted.get(word, 0), outcome.recounted.get(word, 0)
        table.add_row(word, f"{counted:,}", f"{recounted:,}", style=style)
    table.add_row(
        f"all {_words(outcome)} words",
        f"{sum(outcome.counted.values()):,}",
        f"{sum(outcome.recounted.values()):,}",
    )
    return table


def _words(outcome: Outcome) -> int:
    return len(outcome.counted.keys() | outcome.recounted.keys())
