"""Every setting of a spout, as one frozen value that is valid or does not exist.

The meaning, range and default of each are in its row of the table.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self, Unpack

import msgspec

from kinesis_spout.model.errors import InvalidConfig, given_kind
from kinesis_spout.settings.grammar.shard_positions import EndPositions, run_end, run_start
from kinesis_spout.settings.grammar.stream_names import name_of, names_several, parts_of, region_of
from kinesis_spout.settings.grammar.zookeeper_address import hosts
from kinesis_spout.settings.rules import (
    IN_PYTHON,
    SECRETS,
    check_concurrency,
    check_credentials,
    check_dead_letters,
    check_endpoints,
    check_zookeeper,
    fan_out_consumer,
    region,
)
from kinesis_spout.settings.setting_messages import listed
from kinesis_spout.settings.sources import from_environment, from_keywords, from_toml_file, made_of
from kinesis_spout.settings.typed import SpoutFields, SpoutSettings
from shard_state import PositionType, StartPositions

_OLDEST: Final = "trim_horizon"


class SpoutConfig(SpoutFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of one spout. Make it with `of` or `load`, which check the types.

    Raises:
        InvalidConfig: from each of them; names the setting, its value (never a secret's) and what is allowed.
    """

    @classmethod
    def of(cls, **settings: Unpack[SpoutSettings]) -> Self:
        """Make a configuration from keyword arguments alone."""
        return made_of(cls, from_keywords(settings))

    @classmethod
    def load(
        cls,
        path: str | Path | None = None,
        environ: Mapping[str, str] | None = None,
        **overrides: Unpack[SpoutSettings],
    ) -> Self:
        """Make a configuration from keyword arguments over the environment over a TOML file, if given.

        Args:
            path: the file; its table ``[kinesis_spout]`` counts, or all of it if it has none. A relative path in
                it is relative to the process's working directory.
            environ: that of the process unless given. Every ``KINESIS_SPOUT_*`` variable must be a setting, but
                for those that Kubernetes sets for a Service named kinesis-spout.
            overrides: settings.
        """
        in_file = {} if path is None else from_toml_file(Path(path))
        in_environment = from_environment(os.environ if environ is None else environ)
        return made_of(cls, in_file | in_environment | from_keywords(overrides))

    def __post_init__(self) -> None:
        if any(value is msgspec.UNSET for value in msgspec.structs.astuple(self)):
            raise InvalidConfig(
                "SpoutConfig: expected a value for every setting, got some: write SpoutConfig.of(...) with the "
                "same arguments, which checks them and fills in the defaults"
            )
        check_credentials(msgspec.structs.asdict(self), IN_PYTHON)
        check_endpoints(msgspec.structs.asdict(self), IN_PYTHON)
        check_zookeeper(msgspec.structs.asdict(self))
        self._check_streams()
        if self.start_again is not None and self.deployment is None:
            expected = "deployment as well, so that it is done once and not at every start"
            raise IN_PYTHON.refusal("start_again", expected, self.start_again)
        _ = self.fan_out_consumer  # computed for its check
        check_concurrency(msgspec.structs.asdict(self))
        if self.retry_backoff_cap_seconds < self.retry_backoff_seconds:
            expected = f"at least retry_backoff_seconds, which is {self.retry_backoff_seconds}"
            raise IN_PYTHON.refusal("retry_backoff_cap_seconds", expected, self.retry_backoff_cap_seconds)

    def _check_streams(self) -> None:
        """Check each stream alone, and name all that are wrong in one error."""
        refused = []
        if self.is_several:
            refused += self._positions_of_one_stream()
        for part in self.streams:
            try:
                alone = self if len(self.streams) == 1 else self.of_stream(part)
                check_dead_letters(alone.dead_letters, alone.stream, IN_PYTHON)
                _ = alone.stream_region  # computed for its check
            except InvalidConfig as error:
                refused.append(str(error))
        if refused:
            raise InvalidConfig("; ".join(dict.fromkeys(refused)))

    def _positions_of_one_stream(self) -> list[str]:
        """Name the settings with positions per shard, since several streams have shards of the same names."""
        given = {
            "initial_position": self.start.shards,
            "start_again": self.again and self.again[1].shards,
            "until": self.run_end and self.run_end.shards,
        }
        expected = "one position for all shards: those of several streams have the same names"
        return [
            str(IN_PYTHON.refusal(setting, expected, getattr(self, setting)))
            for setting, shards in given.items()
            if shards
        ]

    def of_stream(self, stream: str, *, begins_at_its_start: bool = False) -> Self:
        """Return the settings for one of several streams: as if it were the only one.

        Args:
            stream: by name or by ARN. An ARN brings its region, whatever `region` says for names.
            begins_at_its_start: read it from its oldest record where LATEST is set, so that none of its
                records is lost.
        """
        region = region_of(stream) or self.region
        initial, again = self.initial_position, self.start_again
        if begins_at_its_start:
            initial = _or_oldest(initial)
            again = again and _or_oldest(again)
        return msgspec.structs.replace(
            self, stream=stream, region=region, initial_position=initial, start_again=again
        )

    def __repr__(self) -> str:
        return f"SpoutConfig({listed(msgspec.structs.asdict(self), SECRETS)})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        values = msgspec.structs.asdict(self)
        hidden = {name: "***" for name in SECRETS if values[name] is not None}
        return list((values | hidden).items())

    @property
    def streams(self) -> tuple[str, ...]:
        """The names, ARNs and patterns of streams to read, in the order given."""
        return parts_of(self.stream)

    @property
    def is_several(self) -> bool:
        """True if more than one stream may be read; the properties of one stream then do not apply."""
        return names_several(self.stream)

    @property
    def stream_name(self) -> str:
        """The stream's name, even if its ARN was given."""
        return name_of(self.stream)

    @property
    def stream_arn(self) -> str | None:
        """The stream's ARN, if that was given."""
        return self.stream if self.stream.startswith("arn:") else None

    @property
    def stream_region(self) -> str | None:
        """The region set, else that of the ARN or of AWS's endpoint; None leaves the choice to boto3."""
        return region(msgspec.structs.asdict(self), (self.stream,), IN_PYTHON)

    @property
    def fan_out_consumer(self) -> str | None:
        """The registered consumer whose subscriptions shards are read over; None: they are polled."""
        return fan_out_consumer(self.consumer_mode, self.consumer_name, self.app, IN_PYTHON)

    @property
    def start(self) -> StartPositions:
        """The initial position, shard by shard; LATEST is not resolved here."""
        return run_start(self.initial_position)

    @property
    def again(self) -> tuple[str, StartPositions] | None:
        """The deployment that begins again, and where; LATEST is not resolved here. None without one."""
        if self.start_again is None or self.deployment is None:
            return None
        return self.deployment, run_start(self.start_again)

    @property
    def run_end(self) -> EndPositions | None:
        """The end of a run's read of each shard; None: it does not end."""
        return None if self.until is None else run_end(self.until)

    @property
    def zookeeper_hosts(self) -> str | None:
        """The connection string of the ensemble; None for the embedded server."""
        return hosts(self.zookeeper)

    @property
    def dead_letters_url(self) -> str:
        """The place of dead letters: the URL or path that was set, or the default directory."""
        return self.dead_letters or f".kinesis-spout/{self.app}/{self.stream_name}/dead-letters"


def refuse_misplaced(call: str, stream: object, config: object) -> None:
    """Refuse a configuration in the place of the stream, and anything else in the place of the configuration.

    Raises:
        InvalidConfig: it shows the form of the ``call``.
    """
    if isinstance(stream, (SpoutConfig, Mapping)):
        raise InvalidConfig(
            f"stream: expected a name or an ARN, got {given_kind(stream)}: write {call}(config=...) with a "
            f'SpoutConfig, or {call}("orders", ...) with settings as keyword arguments'
        )
    if config is not None and not isinstance(config, SpoutConfig):
        raise InvalidConfig(
            f"config: expected a SpoutConfig, got {given_kind(config)}: make one with SpoutConfig.of(...) or "
            f'SpoutConfig.load(path), or write {call}("orders", ...) with settings as keyword arguments'
        )


def _or_oldest(position: str) -> str:
    return _OLDEST if run_start(position).default.type is PositionType.LATEST else position
