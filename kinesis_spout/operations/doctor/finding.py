"""What an examination finds, without secrets."""

import dataclasses
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final, Self

from msgspec.structs import asdict

from kinesis_spout.settings import SpoutConfig
from kinesis_spout.settings.rules import SECRETS

_IN_ENVIRONMENT: Final = (
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN",
    "AWS_BEARER_TOKEN_BEDROCK", "AWS_CONTAINER_AUTHORIZATION_TOKEN",
)  # fmt: skip
_SHORTEST: Final = 4
"""Characters: a shorter secret would blank out parts of words."""
_IN_URL: Final = re.compile(r"(?<=://)[^/@\s]+@")


class Condition(Enum):
    """How it stands with one thing."""

    OK = "ok"
    WARNING = "warning"
    """It works, and something about it will surprise."""
    MISSING = "missing"
    """Something that is needed does not work."""
    UNKNOWN = "not known"
    """It could not be asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    about: str
    condition: Condition
    text: str
    next: str | None = None
    """What to do; None where nothing is to be done."""

    @classmethod
    def ok(cls, about: str, text: str) -> Self:
        return cls(about=about, condition=Condition.OK, text=text)

    @classmethod
    def warning(cls, about: str, text: str, next_: str) -> Self:
        return cls(about=about, condition=Condition.WARNING, text=text, next=next_)

    @classmethod
    def missing(cls, about: str, text: str, next_: str) -> Self:
        return cls(about=about, condition=Condition.MISSING, text=text, next=next_)

    @classmethod
    def unknown(cls, about: str, text: str, next_: str | None = None) -> Self:
        return cls(about=about, condition=Condition.UNKNOWN, text=text, next=next_)

    def document(self) -> dict[str, Any]:
        return dataclasses.asdict(self) | {"condition": self.condition.value}


class Redaction:
    """Takes secrets out of texts: errors of services can repeat what they were sent."""

    def __init__(self, config: SpoutConfig) -> None:
        settings = asdict(config)
        self._secrets: set[str] = set()
        self.add(settings[name] for name in SECRETS)
        self.add(os.environ.get(name) for name in _IN_ENVIRONMENT)
        self.add(os.environ.get(f"KINESIS_SPOUT_{name.upper()}") for name in SECRETS)

    def add(self, secrets: Iterable[str | None]) -> None:
        self._secrets |= {secret for secret in secrets if secret is not None and len(secret) >= _SHORTEST}

    def of(self, finding: Finding) -> Finding:
        next_ = None if finding.next is None else self._without_secrets(finding.next)
        return replace(finding, text=self._without_secrets(finding.text), next=next_)

    def _without_secrets(self, text: str) -> str:
        for secret in sorted(self._secrets, key=len, reverse=True):
            text = text.replace(secret, "***")
        return _IN_URL.sub("***@", text)
