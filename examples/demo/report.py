"""The summary as a newcomer reads it: what happened, what it shows, where to look next."""

from collections.abc import Iterator
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from examples.demo.consumers.settings import SESSION_TIMEOUT_SECONDS
from examples.demo.milestones import Join, Kill
from examples.demo.summary import Summary

_SHOWN_IDS: Final = 10


def print_report(console: Console, summary: Summary) -> None:
    """Print the summary."""
    console.print()
    table = Table(title="Every record, at its end", title_justify="left", title_style="bold", show_edge=False)
    table.add_column("")
    table.add_column("records", justify="right")
    table.add_column("what it means", overflow="fold")
    for name, count, meaning in _rows(summary):
        style = "bold red" if name == "lost" and count else None
        table.add_row(name, f"{count:,}", Text(meaning), style=style)
    console.print(table)
    console.print()
    _print_times(console, summary)
    for line in _story(summary):
        console.print(Text(line), soft_wrap=not console.is_terminal)
    _print_dead_letters(console, summary)
    _print_verdict(console, summary)


def _rows(summary: Summary) -> list[tuple[str, int, str]]:
    books = summary.tally
    return [
        ("produced", books.produced, f"flights put on a Kinesis stream over HTTP ({summary.engine})"),
        ("acked", books.acked, "the handler returned, on a Spark executor or in the second consumer"),
        ("  at a retry", summary.recovered, "of these: the handler raised at first, and the retry succeeded"),
        (
            "dead-lettered",
            books.dead_lettered,
            "cancelled flights: given up after the last retry, or rejected",
        ),
        ("lost", len(books.lost), "neither acked nor dead-lettered: must be 0"),
        ("duplicates", books.duplicates, _duplicates(summary)),
    ]


def _duplicates(summary: Summary) -> str:
    if not summary.tally.duplicates:
        return "handled more than once: at least once is the promise"
    killed = sum(kill.repeated for kill in summary.kills)
    moved = summary.tally.duplicates - killed
    return (
        f"handled more than once: {killed:,} by the killed one, before it could commit"
        f"{f', {moved:,} of shards that moved before a commit' if moved else ''}; at least once is the promise"
    )


def _story(summary: Summary) -> list[str]:
    lines = []
    if summary.second is not None:
        lines.append(
            f"A second consumer (pid {summary.second.pid}, plain Python without Spark) shared the shards with the "
            "one on Spark: both have the same application name."
        )
    lines += [_kill(kill) for kill in summary.kills]
    if summary.splits and summary.merges:
        lines.append(
            "A shard was split and two were merged on the way: the new shards were read when everything in "
            "their parents was finished."
        )
    elif not summary.ends_shards:
        lines.append(
            "No shard was split or merged: a closed shard never comes to its end at this endpoint. With Node.js "
            "installed, `make demo` uses kinesis-local, where it does."
        )
    return lines


def _kill(kill: Kill) -> str:
    repeated = "1 record was" if kill.repeated == 1 else f"{kill.repeated:,} records were"
    return (
        f"SIGKILL ended the consumer on Spark (pid {kill.pid}) with {kill.unfinished:,} records unfinished. The "
        "second one went on from ZooKeeper's checkpoints, once ZooKeeper had not heard of the dead one for "
        f"{SESSION_TIMEOUT_SECONDS:g} s (here; by default 6 s). {repeated} handled again."
    )


def _print_times(console: Console, summary: Summary) -> None:
    table = Table(
        title="How long each change took", title_justify="left", title_style="bold", show_edge=False
    )
    table.add_column("s", justify="right")
    table.add_column("from", overflow="fold")
    table.add_column("to", overflow="fold")
    for seconds, begin, end in _times(summary):
        if seconds is not None:
            table.add_row(f"{seconds:.1f}", begin, end)
    if table.row_count:
        console.print(table)
        console.print()


def _times(summary: Summary) -> Iterator[tuple[float | None, str, str]]:
    if summary.second is not None:
        yield from _join("the second consumer joins", summary.second)
    for kill in summary.kills:
        end = f"the second one's first record of its shards (session time-out: {SESSION_TIMEOUT_SECONDS:g} s)"
        yield kill.taken_over_seconds, "SIGKILL of the one on Spark", end
        end = f"its first record, started again (Spark's start: {kill.spark_seconds or 0:.1f} s)"
        yield kill.resumed_seconds, "SIGKILL of the one on Spark", end
        if kill.again is not None:
            yield from _join("it joins again", kill.again)


def _join(begin: str, join: Join) -> Iterator[tuple[float | None, str, str]]:
    yield join.first_record_seconds, begin, "its first record"
    yield join.share_seconds, begin, f"it owns {join.owned} of {join.open_shards} open shards"


def _print_dead_letters(console: Console, summary: Summary) -> None:
    if not summary.examples:
        return
    console.print("\nSome of the dead letters:")
    for letter in summary.examples:
        tries = "1 attempt" if letter.attempts == 1 else f"{letter.attempts} attempts"
        line = f"  {letter.reason} after {tries}: {letter.error}"
        console.print(Text(line), soft_wrap=not console.is_terminal)


def _print_verdict(console: Console, summary: Summary) -> None:
    console.print()
    if summary.unfinished is not None:
        console.print(Text(f"Not finished: {summary.unfinished}.", style="bold red"))
    if summary.tally.lost:
        ids = ", ".join(map(str, summary.tally.lost[:_SHOWN_IDS]))
        console.print(
            Text(f"Lost {len(summary.tally.lost):,} records, with these ids first: {ids}", style="bold red")
        )
    if summary.exit_code == 0:
        console.print(Text(f"Nothing was lost. {summary.seconds:.0f} s in all.", style="bold green"))
    if summary.directory is None:
        console.print("Next: README.md. To look at dead letters, ledger and logs: make demo ARGS=--keep")
    else:
        console.print(Text(f"Dead letters, ledger and logs are in {summary.directory}"), soft_wrap=True)
