"""What commands do with a setting that names several streams: look at each by itself, or refuse them."""

from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING

import typer

from kinesis_spout.cli.failures import WrongArguments
from kinesis_spout.cli.output import note
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.settings.grammar.streams import is_pattern, matching, name_of

if TYPE_CHECKING:
    from kinesis_spout.cli.world import World


class Streams(Enum):
    """What a command takes."""

    ONE = auto()
    """One stream; several are refused."""
    EACH = auto()
    """Several, and it is called for each."""
    ALL = auto()
    """Several, which it is called with."""


def configs_of(world: "World", config: SpoutConfig) -> list[SpoutConfig]:
    """Give the settings for each stream there is now: those that are named, and those that patterns find.

    Raises:
        WrongArguments: no stream is named, and patterns find none.
    """
    if not config.is_several:
        return [config]
    found = {name_of(part): part for part in config.streams if not is_pattern(part)}
    for pattern in filter(is_pattern, config.streams):
        for stream in matching(pattern, world.names(config.of_stream(pattern))):
            found.setdefault(name_of(stream), stream)
    if not found:
        raise WrongArguments(
            f"--stream: expected a pattern that finds streams, got {config.stream!r}, which finds none"
        )
    return [config.of_stream(stream) for stream in found.values()]


def for_each(world: "World", config: SpoutConfig, command: Callable[[SpoutConfig], None]) -> None:
    """Call a command for each stream. It ends with the first exit code that is not 0."""
    code = 0
    configs = configs_of(world, config)
    for each in configs:
        if len(configs) > 1:
            note(f"stream {each.stream}:")
        try:
            command(each)
        except typer.Exit as left:
            code = code or left.exit_code
    if code:
        raise typer.Exit(code)


def refuse_several(config: SpoutConfig) -> None:
    """Refuse several streams.

    Raises:
        WrongArguments.
    """
    if config.is_several:
        raise WrongArguments(f"--stream: expected one stream with this command, got {config.stream!r}")
