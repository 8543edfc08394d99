"""The words of a door's messages for settings: what is refused, what is secret, and how a setting is spelled.

Below the doors, a message names a setting as ``SpoutConfig`` does, and marks it: in backquotes, alone or with
a value ("with `fail_on_data_loss=False` …"), or at its beginning, as refusals do ("dead_letters: expected
…"). That is the spelling in Python, where text is quoted. A door with another spelling respells what leaves it:
errors, and lines of the log. Unmarked text stays unchanged: a path or a stream may have the name of a setting.
"""

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from kinesis_spout.model.errors import InvalidConfig, KinesisSpoutError

Spell = Callable[[str, str | None], str | None]
"""Takes a setting's name, and its value, without quotes, if given. Returns the door's spelling; None: the same."""

_LONGEST_SHOWN: Final = 160
_MARKED: Final = re.compile(r"`([a-z][a-z0-9_]*)(?:=([^`]+))?`")
_REFUSED: Final = re.compile(r"\A([a-z][a-z0-9_]*)(?=: (?:shardId-\S+: )?expected )")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_NOTHING: Final = object()


class NotAllowed(ValueError):  # noqa: N818 - the name says what is wrong
    """An invalid value. The caller that knows the setting's name makes an `InvalidConfig` of it.

    ``expected`` is what would have been right (None: the type's words), ``got`` the wrong part of the value.
    """

    def __init__(self, expected: str | None = None, got: Any = _NOTHING) -> None:
        super().__init__(f"expected {expected}, got {shown(got)}")
        self.expected = expected
        self._got = got

    def refusal(self, called: str, allowed: str, value: Any, *, secret: bool = False) -> InvalidConfig:
        """Make the error for a value, with the door's name for its option and what it accepts."""
        got = value if self._got is _NOTHING else self._got
        return InvalidConfig(
            f"{called}: expected {self.expected or allowed}, got {shown(got, secret=secret)}"
        )


class MissingSetting(InvalidConfig):
    """A setting without a default was not given; ``how`` says how to give it where the error is read."""

    def __init__(self, setting: str, allowed: str, how: str) -> None:
        super().__init__(f"{setting} is required: expected {allowed}, got nothing; {how}")
        self.setting = setting
        self.allowed = allowed


def shown(value: Any, *, secret: bool = False) -> str:
    if value is None:
        return "None"
    if secret:
        return "'***'"
    if isinstance(value, str) and "@" in value:  # the part before it may be a password
        scheme = _SCHEME.match(value)
        value = f"{scheme[0] if scheme else ''}***@{value.rpartition('@')[2]}"
    return repr(value[:_LONGEST_SHOWN] if isinstance(value, str) else value)


def listed(values: Mapping[str, Any], secrets: Collection[str]) -> str:
    return ", ".join(f"{name}={shown(value, secret=name in secrets)}" for name, value in values.items())


def respelled(text: str, spell: Spell) -> str:
    """Translate a message to a door's spelling. Respelling it again changes nothing."""

    def marked(found: re.Match[str]) -> str:
        said = spell(found[1], found[2] and found[2].strip('"'))
        return found[0] if said is None else f"`{said}`"

    return refused_as(_MARKED.sub(marked, text), lambda name: spell(name, None))


def refused_as(text: str, called: Callable[[str], str | None]) -> str:
    """Translate the name of the refused setting alone, at the beginning of a refusal."""
    return _REFUSED.sub(lambda found: called(found[1]) or found[0], text)


def respell(error: KinesisSpoutError, spell: Spell) -> None:
    """Change the message of an error that is about to leave by a door."""
    error.args = tuple(respelled(arg, spell) if isinstance(arg, str) else arg for arg in error.args)
