"""Every setting of a producer, as one frozen value that is valid or does not exist."""

import os
from typing import Any, Final, Self, Unpack

import msgspec

from kinesis_spout.settings.rules import (
    IN_PYTHON,
    check_credentials,
    check_dead_letters,
    check_endpoints,
    region,
)
from kinesis_spout.settings.setting_messages import MissingSetting, listed
from kinesis_spout.settings.sources import from_environment, from_keywords, made_of
from kinesis_spout.settings.spout_config import SpoutConfig
from kinesis_spout.settings.table.connection import CLIENT
from kinesis_spout.settings.table.writing import PRODUCER_SETTINGS
from kinesis_spout.settings.typed import ProducerFields, ProducerSettings

__all__ = ["ProducerConfig", "ProducerSettings"]

_CONNECTION: Final = tuple(option.setting for option in CLIENT if option.is_setting)
"""The settings of a spout that have the same name and meaning."""
_SECRETS: Final = frozenset(name for name, option in PRODUCER_SETTINGS.items() if option.secret)


class ProducerConfig(ProducerFields, frozen=True, kw_only=True):
    """The settings of one producer. Make it with `of`, which checks them."""

    @classmethod
    def of(
        cls,
        stream: str | None,
        config: SpoutConfig | None = None,
        *,
        dead_letters: str | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> Self:
        """Check settings, and fill in the others.

        Args:
            stream: a name or an ARN; None: that of ``config``.
            config: a spout's: its settings for the connection to Kinesis are used, unless ``settings``
                override them, and its stream if none is given. Its dead letters are a consumer's, and not used.
                None: the connection is that of the environment variables ``KINESIS_SPOUT_*``, as a spout takes
                them. Its stream is one to read: a producer does not take it.
            dead_letters: what names a sink.
            settings: by their names.

        Raises:
            InvalidConfig: names the setting, its value (never a secret's) and what is allowed.
        """
        given: dict[str, Any] = {**settings, "dead_letters": dead_letters}
        if stream is not None:
            given["stream"] = stream
        elif config is not None:
            given["stream"] = config.stream
        else:
            how = 'write KinesisProducer("orders", ...), or KinesisProducer(config=...)'
            raise MissingSetting("stream", PRODUCER_SETTINGS["stream"].allowed, how)
        if config is None:
            found = from_environment(os.environ)
        else:
            found = from_keywords({name: getattr(config, name) for name in _CONNECTION})
        connection = {name: found[name] for name in _CONNECTION if name in found}
        return made_of(cls, connection | from_keywords(given, PRODUCER_SETTINGS), PRODUCER_SETTINGS)

    def __post_init__(self) -> None:
        values = msgspec.structs.asdict(self)
        check_credentials(values, IN_PYTHON)
        check_endpoints(values, IN_PYTHON)
        check_dead_letters(self.dead_letters, self.stream, IN_PYTHON)
        _ = self.stream_region  # computed for its check

    def __repr__(self) -> str:
        return f"ProducerConfig({listed(msgspec.structs.asdict(self), _SECRETS)})"

    @property
    def stream_region(self) -> str | None:
        """The region set, else that of the ARN or of AWS's endpoint; None leaves the choice to boto3."""
        return region(msgspec.structs.asdict(self), (self.stream,), IN_PYTHON)
