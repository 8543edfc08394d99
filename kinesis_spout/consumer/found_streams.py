"""Which streams there are to read: those that are named, and those that patterns find now.

**Where a stream without progress begins.** A named stream begins at ``initial_position``. So does one that a
pattern finds if it existed when the application first began. A younger one can have been written to before it
was found, also while no process ran: under LATEST it is read from its oldest record, so that nothing of it is
lost.
"""

import logging
from dataclasses import dataclass

from kinesis_spout.consumer.ports import Ports, StreamsPorts
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.settings.grammar.stream_names import is_pattern, is_younger, matching, name_of

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundStream:
    stream: str
    """Name or ARN."""
    is_named: bool
    """By the setting; otherwise a pattern finds it."""

    @property
    def name(self) -> str:
        return name_of(self.stream)


class FoundStreams:
    """Mutable: it remembers its warnings."""

    def __init__(self, config: SpoutConfig, ports: StreamsPorts) -> None:
        self._config = config
        self._ports = ports
        self._complained_of: set[str] = set()

    @property
    def has_patterns(self) -> bool:
        return any(is_pattern(part) for part in self._config.streams)

    def find(self) -> list[FoundStream]:
        """The named streams, whether they exist or not, then those that patterns find."""
        parts = self._config.streams
        found = {
            name_of(part): FoundStream(stream=part, is_named=True) for part in parts if not is_pattern(part)
        }
        for pattern in filter(is_pattern, parts):
            for stream in matching(pattern, self._ports.names(self._config.of_stream(pattern))):
                earlier = found.setdefault(name_of(stream), FoundStream(stream=stream, is_named=False))
                self._complain(pattern, stream, earlier)
        return list(found.values())

    def _complain(self, pattern: str, stream: str, earlier: FoundStream) -> None:
        """Warn once of a second stream of a name, which is not read. A name and an ARN can mean one stream."""
        are_two = stream != earlier.stream and stream.startswith("arn:") and earlier.stream.startswith("arn:")
        if are_two and stream not in self._complained_of:
            self._complained_of.add(stream)
            _log.warning(
                "%s, which %s finds, is not read: %s has the same name, and progress is kept by name; read it "
                "with an application of its own",
                stream,
                pattern,
                earlier.stream,
            )

    def config_of(self, found: FoundStream, ports: Ports) -> SpoutConfig:
        """The settings for a stream, with where it begins. Asks the store and Kinesis."""
        config = self._config.of_stream(found.stream)
        younger = self._config.of_stream(found.stream, begins_at_its_start=True)
        if found.is_named or younger == config:
            return config
        history = self._ports.history()
        if history.began is None or found.name in history.streams:
            return config
        return younger if is_younger(ports.lister.summary().created, history.began) else config
