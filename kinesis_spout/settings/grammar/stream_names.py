"""The streams that a spout reads, as its setting names them: names, ARNs, and patterns that find streams.

A pattern is a glob of names, as in a shell: ``*`` stands for any number of characters, ``?`` for one. No name
or ARN of a stream contains these, so they mark a pattern. In a pattern that is an ARN only the name may have
them: it finds streams of the account whose credentials are used, in the ARN's region.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

from kinesis_spout.model.errors import StreamNotFound
from kinesis_spout.settings.setting_messages import NotAllowed

STREAM_NAME: Final = r"[a-zA-Z0-9_.-]{1,128}"
_PATTERN_NAME: Final = r"[a-zA-Z0-9_.*?-]{1,128}"
_ARN_BEFORE_NAME: Final = r"arn:aws[a-z-]*:kinesis:[a-z0-9-]+:\d{12}:stream/"
STREAM_ARN: Final = _ARN_BEFORE_NAME + STREAM_NAME
_PART: Final = re.compile(rf"(?:{_ARN_BEFORE_NAME})?(?P<name>{_PATTERN_NAME})")

PART_WORDS: Final = "a stream name (1 to 128 of a-z A-Z 0-9 _ . -), a stream ARN, a pattern with * or ?"
WORDS: Final = f"{PART_WORDS}, or several of these, separated by commas"

_CLOCKS_APART_SECONDS: Final = 60.0
"""The most by which our clock can be ahead of Kinesis's."""


def parts_of(setting: str) -> tuple[str, ...]:
    return tuple(part.strip(" ") for part in setting.split(","))


def is_pattern(part: str) -> bool:
    return "*" in part or "?" in part


def names_several(setting: str) -> bool:
    return "," in setting or is_pattern(setting)


def is_same(one: str, other: str) -> bool:
    """Tell whether two names or ARNs can be of one stream: a name is that of any ARN that ends with it."""
    return one == other or (name_of(one) == name_of(other) and not (_is_arn(one) and _is_arn(other)))


def _is_arn(stream: str) -> bool:
    return stream.startswith("arn:")


def name_of(stream: str) -> str:
    return stream.rpartition("/")[2]


def region_of(part: str) -> str | None:
    return part.split(":")[3] if part.startswith("arn:") else None


def matching(pattern: str, names: Iterable[str]) -> list[str]:
    """Return the names that a pattern finds; as ARNs, if the pattern is one."""
    before, slash, glob = pattern.rpartition("/")
    return [f"{before}{slash}{name}" for name in names if fnmatchcase(name, glob)]


def covers(part: str, stream: str) -> bool:
    return part == stream or (is_pattern(part) and stream in matching(part, [name_of(stream)]))


def is_younger(created: float, began: float) -> bool:
    """Tell whether a stream found by a pattern was created after its reader first began on any stream.

    Records may be put on it before it is found: under LATEST it is read from its oldest record.
    """
    return created > began - _CLOCKS_APART_SECONDS


def nothing_found(setting: str, patterns: Iterable[str]) -> StreamNotFound:
    """Make the error of patterns that find no stream at the start; the user calls them ``setting``."""
    return StreamNotFound(
        f"expected at least one stream that {setting} finds, {', '.join(patterns)} finds none: check the pattern, "
        "the region, the endpoint and the account of the credentials. New streams are found while one is read"
    )


def plain_streams(given: Any) -> Any:
    """Turn a list of streams, as in Python and TOML, into the text that is checked."""
    if isinstance(given, Sequence) and not isinstance(given, (str, bytes)) and given:
        if all(isinstance(part, str) and "," not in part for part in given):
            return ",".join(part.strip(" ") for part in given)
        return None
    return ",".join(parts_of(given)) if isinstance(given, str) and "," in given else given


def check_streams(setting: str) -> None:
    """Refuse invalid parts, all in one NotAllowed, and streams that share a name."""
    parts = parts_of(setting)
    wrong = [part for part in parts if not _PART.fullmatch(part)]
    if wrong:
        raise NotAllowed(got=_listed(wrong) if len(parts) > 1 else wrong[0])
    if any(name_of(part) in {".", ".."} for part in parts):
        raise NotAllowed("no '.' or '..' as a name: ZooKeeper does not take them")
    times = Counter(name_of(part) for part in parts)
    twice = [part for part in parts if times[name_of(part)] > 1]
    if twice:
        raise NotAllowed(
            "each stream name once, for progress is kept by name (of two accounts or regions, give each stream to "
            "an application of its own)",
            _listed(twice),
        )


def _listed(parts: Sequence[str]) -> str:
    return ", ".join(parts)
