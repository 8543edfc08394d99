"""``kinesis-spout members``: who shares the shards, and how to take one out."""

import difflib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kinesis_spout.cli.each_stream import Streams
from kinesis_spout.cli.failures import NotFound
from kinesis_spout.cli.misspelt import check_begun
from kinesis_spout.cli.output import note, print_json
from kinesis_spout.cli.settings import configured
from kinesis_spout.cli.stored_progress import StoredProgress
from kinesis_spout.cli.views.group_view import GroupView, take_group_view
from kinesis_spout.settings import SpoutConfig

if TYPE_CHECKING:
    from kinesis_spout.cli.world import World

members: Final = typer.Typer(
    help="Show the members of an application, which share its shards; drain one before it is stopped.",
    no_args_is_help=True,
)

Name = Annotated[str, typer.Argument(metavar="MEMBER", help="Its name, as `members list` shows it.")]


@members.command("list")
@configured(streams=Streams.EACH)
def show(
    ctx: typer.Context,
    config: SpoutConfig,
    *,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show each living member: whether it leads or drains, its mode and weight, and how many shards it has.

    Next: `shards` shows which shard is whose, `members drain` takes all shards from one.
    """
    with _looking(ctx.obj, config) as (_, view):
        if json:
            print_json(view.document())
        elif view.members:
            view.print()
        else:
            note("no member is alive: start one, for instance with `kinesis-spout run`")


@members.command()
@configured()
def drain(ctx: typer.Context, config: SpoutConfig, member: Name) -> None:
    """Have a member hand all its shards over to the others, and give it none, until `members undrain`.

    It stays alive, without anything to do: stop it when `members list` says that it owns nothing.
    """
    with _looking(ctx.obj, config) as (progress, view):
        _check_alive(member, view)
        progress.group.drain(member)
        note(f"{member} hands its shards over; `kinesis-spout members list` shows how far it is")
        if all(other.draining or other.name == member for other in view.members):
            note("nobody else takes shards now: they wait until another member comes")


@members.command()
@configured()
def undrain(ctx: typer.Context, config: SpoutConfig, member: Name) -> None:
    """Let a member have its share again."""
    with _looking(ctx.obj, config) as (progress, view):
        _check_alive(member, view)
        progress.group.end_drain(member)
        note(f"{member} has its share again")


@contextmanager
def _looking(world: "World", config: SpoutConfig) -> Iterator[tuple[StoredProgress, GroupView]]:
    with world.progress(config) as progress:
        check_begun(progress, config)
        yield progress, take_group_view(progress)


def _check_alive(name: str, view: GroupView) -> None:
    if name in view.names:
        return
    near = difflib.get_close_matches(name, view.names, n=1)
    advice = f": did you mean {near[0]}?" if near else ""
    alive = ", ".join(view.names) or "none is"
    raise NotFound(f"expected a member that is alive ({alive}), got {name}{advice}")
