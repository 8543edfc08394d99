"""Which streams there are to read: those that are named, and those that patterns find now.

**Where a stream begins** that has no progress yet. One that is named begins at ``initial_position``, as an
application of one stream does. So does one that a pattern finds, if it was there when the application first
began. If it is younger, somebody may have written to it before anybody noticed it, also while no process ran:
under LATEST it is read from its oldest record, so that nothing of it is lost.
"""

import logging
from dataclasses import dataclass

from kinesis_spout.consumer.ports import Ports, StreamsPorts
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.settings.grammar.streams import is_pattern, is_younger, matching, name_of

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundStream:
    """A stream that is to be read."""

    stream: str
    """Its name or its ARN."""
    is_named: bool
    """Whether the setting names it; a pattern finds it otherwise."""

    @property
    def name(self) -> str:
        """Its name, under which its progress is kept."""
        return name_of(self.stream)


class FoundStreams:
    """Finds the streams of a setting. Mutable: it remembers what it has complained of."""

    def __init__(self, config: SpoutConfig, ports: StreamsPorts) -> None:
        self._config = config
        self._ports = ports
        self._complained_of: set[str] = set()

    @property
    def has_patterns(self) -> bool:
        return any(is_pattern(part) for part in self._config.streams)

    def find(self) -> list[FoundStream]:
        """Give the streams that are named, whether they exist or not, and then those that patterns find."""
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
        """Warn once of a second stream of a name, which is not read; a name and an ARN may mean the same one."""
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
        """Give the settings for a stream, with where it begins. Asks what is stored, and Kinesis."""
        config = self._config.of_stream(found.stream)
        younger = self._config.of_stream(found.stream, begins_at_its_start=True)
        if found.is_named or younger == config:
            return config
        history = self._ports.history()
        if history.began is None or found.name in history.streams:
            return config
        return younger if is_younger(ports.lister.summary().created, history.began) else config
