"""How each door calls the settings.

Below the doors, a message calls a setting as ``SpoutConfig`` does, and marks it: in backquotes, alone or with a
value ("with `fail_on_data_loss=False` …"), or at its beginning, as refusals do ("dead_letters: expected …"). That
is how it is spelled in Python. A door whose users spell it otherwise has what leaves it respelled: errors, and
lines of the log. What is not marked stays as it is: a path or a stream may have the name of a setting.
"""

import re
from collections.abc import Callable
from typing import Final

from kinesis_spout.errors import KinesisSpoutError

Spell = Callable[[str, str | None], str | None]
"""Takes the name of a setting, and its value where one is given. Gives how a door says it; None: the same way."""

_MARKED: Final = re.compile(r"`([a-z][a-z0-9_]*)(?:=([^`]+))?`")
_REFUSED: Final = re.compile(r"\A([a-z][a-z0-9_]*)(?=: expected )")


def respelled(text: str, spell: Spell) -> str:
    """Give a message in the words of a door. To respell it again changes nothing."""

    def marked(found: re.Match[str]) -> str:
        said = spell(found[1], found[2])
        return found[0] if said is None else f"`{said}`"

    return _REFUSED.sub(lambda found: spell(found[1], None) or found[0], _MARKED.sub(marked, text))


def respell(error: KinesisSpoutError, spell: Spell) -> None:
    """Change the message of an error, which is about to leave by a door."""
    error.args = tuple(respelled(arg, spell) if isinstance(arg, str) else arg for arg in error.args)
