"""How far a command has come, on a terminal's standard error while it works. Elsewhere nothing is shown."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

from kinesis_spout.cli.output import printable


@contextmanager
def progress(what: str, total: int | None = None, *, hidden: bool = False) -> Iterator[Callable[[int], None]]:
    """Show how many of something are done; give what tells it of more."""
    console = Console(stderr=True)
    if hidden or not console.is_terminal:
        yield lambda _count: None
        return
    columns = (SpinnerColumn(), TextColumn(what), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True) as shown:
        task = shown.add_task(what, total=total)
        yield lambda count: shown.advance(task, count)


@contextmanager
def waiting() -> Iterator[Callable[[str], None]]:
    """Show what is waited for; give what says it."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _text: None
        return
    with console.status("waiting") as status:
        yield lambda text: status.update(printable(text))
