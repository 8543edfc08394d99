"""Finds out that a command names an application that does not exist, before it shows that nothing is there."""

import difflib
from collections.abc import Sequence
from pathlib import Path

from kinesis_spout.cli.failures import NotBegun
from kinesis_spout.cli.output import note
from kinesis_spout.cli.stored_progress import StoredProgress
from kinesis_spout.cli.world import World
from kinesis_spout.model.errors import StoreError
from kinesis_spout.ports import DeadLetterSink
from kinesis_spout.settings import SpoutConfig


def check_begun(progress: StoredProgress, config: SpoutConfig) -> None:
    """Refuse an application of which nothing is stored, where others have begun.

    Where none has, this one may be the first: what the command says then is right.

    Raises:
        NotBegun: names those that have begun.
        CheckpointUnreadable, StoreUnavailable.
    """
    if progress.store.shard_ids() or progress.store.read_application() is not None:
        return
    begun = [f"{app} on {stream}" for app, stream in progress.applications()]
    if begun:
        raise _not_begun(f"{config.app} on {config.stream_name}", begun)


def check_letters_found(world: World, config: SpoutConfig, sink: DeadLetterSink) -> None:
    """Refuse an application that has not begun, where others have, when none of its dead letters is found.

    Where they are kept elsewhere, the application's name does not say where, and is not asked about. Nor are
    they kept in ZooKeeper: where that cannot be asked, it is only told.

    Raises:
        NotBegun: names those that have begun.
    """
    if config.dead_letters is not None or Path(config.dead_letters_url).is_dir():
        return
    if next(iter(sink.read()), None) is not None:
        return
    try:
        with world.progress(config) as progress:
            check_begun(progress, config)
    except StoreError as error:
        note(f"could not find out whether {config.app} has begun on {config.stream_name}: {error}")


def _not_begun(name: str, begun: Sequence[str]) -> NotBegun:
    near = difflib.get_close_matches(name, begun, n=1)
    advice = f": did you mean {near[0]}?" if near else ""
    return NotBegun(
        f"expected an application that has begun ({', '.join(begun)}), got {name}, which has not{advice}"
    )
