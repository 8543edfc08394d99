"""How a refused setting is told: its name, what is allowed, and its value, unless that is a secret."""

from typing import Any, Final, NoReturn

from kinesis_spout.errors import InvalidConfig

SECRETS: Final = frozenset({"aws_access_key_id", "aws_secret_access_key", "aws_session_token"})
"""Settings whose values appear in no message and no repr."""


class MissingSetting(InvalidConfig):
    """A setting without a default was not given.

    Args:
        setting: its name.
        allowed: what is allowed.
        how: how it can be given where the error is read.
    """

    def __init__(self, setting: str, allowed: str, how: str) -> None:
        super().__init__(f"{setting} is required: expected {allowed}, got nothing; {how}")
        self.setting = setting
        self.allowed = allowed


def refuse(name: str, value: Any, allowed: str) -> NoReturn:
    """Raise the error for a value that is not allowed."""
    raise InvalidConfig(f"{name}: expected {allowed}, got {shown(name, value)}")


def shown(name: str, value: Any) -> str:
    """Give a setting's value as messages show it."""
    if value is None:
        return "None"
    if name in SECRETS:
        return "'***'"
    if isinstance(value, str) and "@" in value:  # what stands before it may be a password
        scheme, separator, rest = value.rpartition("://")
        value = f"{scheme}{separator}***@{rest.rpartition('@')[2]}"
    return repr(value)
