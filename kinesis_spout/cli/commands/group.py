"""Commands for shards, for the members that share them, and for what operators order: ``pause``, ``audit``."""

from typing import TYPE_CHECKING, Annotated, Final

import typer

from kinesis_spout.cli.output import duration, note, print_blank, print_json, print_table
from kinesis_spout.cli.shared_options import Json, Streams, configured
from kinesis_spout.model.errors import KinesisError
from kinesis_spout.operations import group
from kinesis_spout.operations.audit import read_audit
from kinesis_spout.operations.checkpoints import checkpoint_text
from kinesis_spout.operations.group import GroupView
from kinesis_spout.settings import SpoutConfig

if TYPE_CHECKING:
    from kinesis_spout.operations.watch.sight import ShardSight

members: Final = typer.Typer(
    help="Show an application's members; drain one before a stop.",
    no_args_is_help=True,
)

_AUDIT_HEADINGS: Final = ("when", "who", "door", "what", "of", "why")
_SHARD_HEADINGS: Final = (
    "shard", "state", "parents", "owner", "goes on", "lag", "oldest", "unfinished", "retries", "holes",
)  # fmt: skip
_STALLED: Final = frozenset({"stalled", "stalled, closed"})
_MEMBER_HEADINGS: Final = ("member", "role", "mode", "weight", "owns", "assigned")

Name = Annotated[str, typer.Argument(metavar="MEMBER", help="Its name, as `members list` shows it.")]
Shards = Annotated[
    list[str] | None,
    typer.Option("--shard", metavar="SHARD", help="Only this shard; repeatable."),
]


@members.command("list")
@configured(streams=Streams.EACH)
def show(ctx: typer.Context, config: SpoutConfig, *, json: Json = False) -> None:
    """Show each living member: role, mode, weight and shards.

    A member that "is to lead" has been elected, or will be, and has not yet assigned the shards of those that
    are gone.

    Next: `kinesis-spout shards` shows who owns which shard, `kinesis-spout members drain MEMBER` takes all
    shards from one.
    """
    view = group.view_group(ctx.obj, config)
    if json:
        print_json(view.document())
    elif view.members:
        print_members(view)
    else:
        note("no member is alive: start one, for instance with `kinesis-spout run MODULE:HANDLER`")


@members.command()
@configured()
def drain(ctx: typer.Context, config: SpoutConfig, member: Name) -> None:
    """Make a member hand all its shards over to the others.

    It gets no shards until `kinesis-spout members undrain MEMBER`. It stays alive, without work: stop it when
    `kinesis-spout members list` says that it owns nothing.
    """
    others_take = group.drain(ctx.obj, config, member)
    note(f"{member} hands its shards over; `kinesis-spout members list` shows how far it is")
    if not others_take:
        note("no other member takes shards now: they wait until one joins")


@members.command()
@configured()
def undrain(ctx: typer.Context, config: SpoutConfig, member: Name) -> None:
    """Give a drained member its share of the shards again."""
    group.end_drain(ctx.obj, config, member)
    note(f"{member} has its share again")


@configured(streams=Streams.EACH)
def pause(ctx: typer.Context, config: SpoutConfig, *, shard: Shards = None) -> None:
    """Deliver no more records of an application until `resume`.

    Records in flight finish, and their progress is stored; retries wait. Owners keep their shards. ZooKeeper
    keeps the pause over restarts and changes of owner; consumers notice it within about a second. Children of a
    paused shard wait.

    Next: `kinesis-spout shards` shows what is paused, `kinesis-spout resume` ends it.
    """
    group.pause(ctx.obj, config, shard or ())
    for name in shard or ("the whole application",):
        note(f"{name} is paused")


@configured(streams=Streams.EACH)
def resume(ctx: typer.Context, config: SpoutConfig, *, shard: Shards = None) -> None:
    """End all pauses of an application.

    It ends those by an operator (`kinesis-spout pause`), and those of consumers whose records nearly all
    failed. Consumers notice it within about a second. A consumer that paused itself tries a record now and
    then, and also continues when one succeeds. If records still fail, it pauses again.

    With --shard only that shard continues, if an operator paused it alone.

    Next: `kinesis-spout shards` shows whether a shard is read, or paused.
    """
    resumed = group.resume(ctx.obj, config, shard or ())
    if resumed.everything:
        note("the whole application is resumed")
    for name in shard or resumed.names:
        note(f"{name} is resumed" if name in resumed.names else f"{name} is not paused by an operator")
    if not (shard or resumed.everything or resumed.names):
        note("nothing is paused")


def print_members(view: GroupView) -> None:
    rows = [
        [
            member.name,
            view.role(member),
            member.mode.value,
            f"{member.weight:g}",
            str(view.owners[member.name]),
            str(len(view.assignment.of(member.name))),
        ]
        for member in view.members
    ]
    print_table(_MEMBER_HEADINGS, rows, cutting={"member"})
    if view.leader is None:
        note("no member leads now: shards of members that are gone, or new, wait until one does")


@configured(streams=Streams.EACH)
def audit(ctx: typer.Context, config: SpoutConfig, *, json: Json = False) -> None:
    """List what operators changed, the oldest change first.

    Each pause, resume, drain, reset, redrive and dismissal is one entry, from the command line or the web page.
    ZooKeeper keeps the last 1,000 of an application on a stream.
    """
    documents = [entry.document() for entry in read_audit(ctx.obj, config)]
    if json:
        print_json(documents)
    elif documents:
        rows = [[str(value) or "-" for value in document.values()] for document in documents]
        print_table(_AUDIT_HEADINGS, rows, cutting={"who"})
    else:
        note("no operator has changed anything yet")


@configured(streams=Streams.EACH)
def shards(
    ctx: typer.Context,
    config: SpoutConfig,
    *,
    lag: Annotated[
        bool, typer.Option(help="Find the lag: read one record of each shard at its checkpoint.")
    ] = True,
    json: Json = False,
) -> None:
    """Show each shard: its state, owner, checkpoint and lag.

    "lag" is what Kinesis says of the first record after the checkpoint (MillisBehindLatest), "oldest" is that
    record's age. The states, the most urgent first: stalled (it has records to deliver, and does not move: a
    line below the table says why), unreadable, gone (trimmed by retention before it was finished), paused
    (practically every record failed), paused by an operator, ready (no member reads it now), reading, waiting
    (for its parents), not begun, over (all of it is finished).

    Members with an address (`http`) are asked whether their shards move. A shard of another member is stalled
    when for 30 seconds records waited and no progress was stored.

    The living members, which share the shards, stand below; one of them leads.

    Next: `kinesis-spout checkpoints show` for the stored progress in full, `kinesis-spout dead-letters list`
    for records that were given up.
    """
    from kinesis_spout.operations.watch.sight import view_shards  # noqa: PLC0415 - --help does not wait for it

    view = view_shards(ctx.obj, config, lag=lag)
    if json:
        print_json(view.document())
    else:
        print_table(
            _SHARD_HEADINGS,
            [_shard_cells(each) for each in view.shards],
            cutting={"owner"},
            alarming=_STALLED,
        )
        if view.group.members:
            print_blank()
            print_members(view.group)
    for text in view.notes:
        note(text)
    if any(each.view.problem for each in view.shards):
        raise typer.Exit(KinesisError.exit_code)


def _shard_cells(sight: "ShardSight") -> list[str]:
    view, document = sight.view, sight.document()
    unread, lag = document["oldest_unread_millis"], document["lag_millis"]
    return [
        view.shard_id,
        f"{sight.state.value}, closed" if view.closed else sight.state.value,
        ", ".join(view.parents) or "-",
        view.owner or "-",
        "-" if view.checkpoint is None else checkpoint_text(view.checkpoint),
        "?" if view.problem else "-" if lag is None else duration(lag),
        "-" if unread is None else duration(unread),
        str(len(document["unfinished"])),
        str(document["retries"]),
        str(document["holes"]),
    ]
