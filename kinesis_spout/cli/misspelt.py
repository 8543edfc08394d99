"""Finds out that a command names an application that does not exist, before it shows that nothing is there."""

import difflib
from collections.abc import Sequence

from kinesis_spout.cli.failures import NotFound
from kinesis_spout.cli.world import Progress
from kinesis_spout.config import SpoutConfig


def check_begun(progress: Progress, config: SpoutConfig) -> None:
    """Refuse an application of which nothing is stored, where others have begun.

    Where none has, this one may be the first: what the command says then is right.

    Raises:
        NotFound: names those that have begun.
        CheckpointUnreadable, StoreUnavailable.
    """
    if progress.store.shard_ids() or progress.store.read_application() is not None:
        return
    begun = [f"{app} on {stream}" for app, stream in progress.applications()]
    if begun:
        raise _not_begun(f"{config.app} on {config.stream_name}", begun)


def _not_begun(name: str, begun: Sequence[str]) -> NotFound:
    near = difflib.get_close_matches(name, begun, n=1)
    advice = f": did you mean {near[0]}?" if near else ""
    return NotFound(
        f"expected an application that has begun ({', '.join(begun)}), got {name}, which has not{advice}"
    )
