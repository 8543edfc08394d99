"""A member of an application's group: what it says of itself, and what the leader knows of it besides."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from shard_state import form_level
from shard_state.errors import InvalidStoredForm
from shard_state.stored_form import check_version, mapping, no_number, number, texts, whole_number

VERSION: Final = 1
"""Does not change: members of other releases read this form to agree on all others. It gets optional fields."""


class MemberMode(Enum):
    """When a member takes shards."""

    SHARING = "sharing"
    """Always: it has its share of them."""
    STANDBY = "standby"
    """Only while no member that shares is there; then one stand-by has them all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """One living member of an application, as the leader sees it."""

    name: str
    mode: MemberMode = MemberMode.SHARING
    weight: float = 1.0
    """The share that it wants, relative to others; more than 0."""
    rates: Mapping[str, float] = field(default_factory=dict)
    """Bytes per second, on the average of some minutes, of the shards that it owns."""
    ended: frozenset[str] = frozenset()
    """Shards whose SHARD_END it has stored, until the assignment names them no more."""
    joined: int = 0
    """Grows with every member that joins."""
    http: str | None = None
    """The host:port at which it answers over HTTP, if it does."""
    reads: int = form_level.FIRST
    """The highest level of stored forms that it reads; see ``form_level``."""
    draining: bool = False
    """True if an operator wants it to give everything up."""

    def encode(self) -> bytes:
        """Give the stored form of what the member says of itself: all but its name, when it joined, its drain.

        Rates keep two digits. So one that hardly changes gives the same bytes, which need not be written again.
        """
        document = {
            "version": VERSION,
            "mode": self.mode.value,
            "weight": self.weight,
            "rates": {shard_id: int(float(f"{rate:.1e}")) for shard_id, rate in sorted(self.rates.items())},
            "ended": sorted(self.ended),
        }
        if self.http is not None:
            document["http"] = self.http
        if self.reads != form_level.FIRST:
            document["reads"] = self.reads
        return json.dumps(document, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, stored: bytes, *, name: str, joined: int = 0, draining: bool = False) -> "GroupMember":
        """Read the stored form of a member; what it does not say of itself is given, unknown fields are ignored.

        Raises:
            InvalidStoredForm: when it cannot be read, or is of a newer version.
        """
        try:
            document = mapping(json.loads(stored, parse_constant=no_number))
            check_version(document["version"], VERSION, "a member", InvalidStoredForm)
            return cls(
                name=name,
                http=_address(document.get("http")),
                mode=MemberMode(document["mode"]),
                weight=_weight(document["weight"]),
                rates={shard_id: _rate(rate) for shard_id, rate in mapping(document["rates"]).items()},
                ended=frozenset(texts(document["ended"])),
                reads=whole_number(document.get("reads", form_level.FIRST)),
                joined=joined,
                draining=draining,
            )
        except InvalidStoredForm:
            raise
        except (LookupError, TypeError, ValueError, ArithmeticError, RecursionError) as error:
            raise InvalidStoredForm(
                f"expected a stored member (JSON, version {VERSION}) of {name}, got {stored[:200]!r}: {error!r}. "
                "A member writes it when it joins: restart that one"
            ) from error


def _address(value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ValueError(f"expected an address as text, got {value!r}")
    return value


def _weight(value: object) -> float:
    weight = number(value)
    if weight <= 0:
        raise ValueError(f"expected a weight of more than 0, got {value!r}")
    return weight


def _rate(value: object) -> float:
    rate = number(value)
    if rate < 0:
        raise ValueError(f"expected bytes per second, 0 or more, got {value!r}")
    return rate
