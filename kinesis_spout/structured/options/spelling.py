"""What a message that leaves by ``format("kinesis")`` calls the settings that the spout has, too: its options."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from kinesis_spout.config.spelling import respell
from kinesis_spout.errors import KinesisSpoutError
from kinesis_spout.structured.options.tables.table import OPTIONS

_NAMES: Final = frozenset(spec.name for spec in OPTIONS)
_CALLED_OTHERWISE: Final = {
    "stream": "streamName",
    "app": "checkpointApp",
    "aws_access_key_id": "awsAccessKey",
    "aws_secret_access_key": "awsSecretKey",
    "aws_session_token": "sessionToken",
}


def as_option(setting: str, value: str | None) -> str | None:
    """Spell a setting as an option; None if there is no such option."""
    first, *others = setting.split("_")
    name = _CALLED_OTHERWISE.get(setting) or first + "".join(part.capitalize() for part in others)
    if name not in _NAMES:
        return None
    return name if value is None else f"{name}={value.lower() if value in {'True', 'False'} else value}"


@contextmanager
def said_as_options() -> Iterator[None]:
    """Raise our own errors in the words of the options."""
    try:
        yield
    except KinesisSpoutError as error:
        respell(error, as_option)
        raise
