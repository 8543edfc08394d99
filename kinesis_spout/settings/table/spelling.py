"""The option of ``format("kinesis")`` for each setting. See ``setting_messages``."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from kinesis_spout.model.errors import KinesisSpoutError
from kinesis_spout.settings.setting_messages import respell
from kinesis_spout.settings.table import OPTIONS

_NAMES: Final = {option.setting: option.name for option in reversed(OPTIONS)}


def as_option(setting: str, value: str | None) -> str | None:
    """Spell a setting as an option; None if there is no such option."""
    name = _NAMES.get(setting)
    if name is None or value is None:
        return name
    return f"{name}={value.lower() if value in {'True', 'False'} else value}"


@contextmanager
def said_as_options() -> Iterator[None]:
    """Raise our errors with the options' spellings."""
    try:
        yield
    except KinesisSpoutError as error:
        respell(error, as_option)
        raise
