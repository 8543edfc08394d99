"""An option: a row of the table, from which checks, messages, redaction, help and documents come."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

import msgspec

from kinesis_spout.settings.grammar.value_types import ValueType


class Use(Enum):
    """The uses of ``format("kinesis")``, which options are given to. The value is the name in messages."""

    STREAM_READ = "streaming reads (spark.readStream)"
    BATCH_READ = "batch reads (spark.read)"
    WRITE = "writes (df.write, df.writeStream)"


class Topic(Enum):
    """The headings of the documentation, in its order."""

    FIRST = "Set these first"
    RUN = "Streams, and where a run begins and ends"
    RETRIES = "Retries, time-outs and order"
    AMOUNTS = "How much at a time"
    READING = "Reading"
    PUTTING = "Putting"
    SHARING = "Sharing a stream"
    ACCOUNTS = "Accounts, endpoints and proxies"
    ZOOKEEPER = "ZooKeeper: users, ACLs and TLS"
    MONITORING = "Monitoring and logs"


READS: Final = frozenset({Use.STREAM_READ, Use.BATCH_READ})
STREAM_READ: Final = frozenset({Use.STREAM_READ})
BATCH_READ: Final = frozenset({Use.BATCH_READ})
WRITE: Final = frozenset({Use.WRITE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option, at the doors that have it. Made by `setting`, `option` or `shared`.

    An option whose range, default or meaning differs from door to door has a row for each.
    """

    setting: str
    """Its spelling in Python: a keyword of `SpoutConfig`, a key of a file, ``--set``; a field of typed
    options."""
    type: ValueType
    default: Any
    doc: str
    """Its meaning. Backquotes mark other settings, which are shown in the door's spelling."""
    topic: Topic | None = None
    """Its heading in the documentation; None until ``under`` gives it one."""
    is_setting: bool = False
    """True if ``SpoutConfig`` has it, and with it the environment, files and the command line."""
    is_required: bool = False
    or_none: bool = False
    """True if a setting may be None although it has a default."""
    has_argument: bool = False
    """True if the command line has an option of that name, in addition to ``--set``."""
    name: str = ""
    """Its spelling in ``format("kinesis")``, where case does not matter; empty: it has no such option."""
    uses: frozenset[Use] = frozenset()
    """The uses of ``format("kinesis")`` that accept it."""
    aliases: tuple[str, ...] = ()
    """Other connectors' spellings. Under one that ends in ``Ms``, a bare number means milliseconds."""
    elsewhere: tuple[str, ...] = ()
    """Its names in other programs, for readers who look for those: "KCL maxRecords". No spelling of ours."""
    unset: str = ""
    """The rule without a default and a value."""
    secret: bool = False
    """Its value appears in no message and no repr."""

    @property
    def allows_none(self) -> bool:
        return self.or_none or (self.default is None and not self.is_required)

    @property
    def allowed(self) -> str:
        """The values that a setting may have: "int >= 0, or none"."""
        return self.type.words + (", or none" if self.allows_none else "")

    @property
    def default_words(self) -> str:
        """The default in words: what holds for None, "required" where there is none."""
        if self.is_required:
            return "required"
        return self.unset or "none" if self.default is None else str(self.type.show(self.default))

    @property
    def default_text(self) -> str | None:
        return None if self.default is None else self.type.write(self.default)

    @property
    def schema(self) -> Mapping[str, Any]:
        annotation = self.type.annotation
        return msgspec.json.schema(annotation | None if self.allows_none else annotation)


def setting(setting: str, type_: ValueType, default: Any = None, **more: Any) -> Option:
    """Make the row of an option of ``SpoutConfig``."""
    return Option(setting=setting, type=type_, default=default, is_setting=True, **more)


def option(name: str, uses: frozenset[Use], type_: ValueType, default: Any = None, **more: Any) -> Option:
    """Make the row of an option of ``format("kinesis")``; its field has its name in snake case."""
    field = more.pop("setting", re.sub("([A-Z])", r"_\1", name).lower())
    return Option(setting=field, name=name, uses=uses, type=type_, default=default, **more)


def shared(setting: str, type_: ValueType, default: Any = None, **more: Any) -> Option:
    """Make the row of an option of both; ``format("kinesis")`` spells it in camel case."""
    name = more.pop("name", re.sub("_([a-z])", lambda found: found[1].upper(), setting))
    uses = more.pop("uses", frozenset(Use))
    return option(name, uses, type_, default, setting=setting, is_setting=True, **more)


def under(topic: Topic, *rows: Option) -> tuple[Option, ...]:
    """Return the rows, with this heading for those that have none yet."""
    return tuple(row if row.topic else replace(row, topic=topic) for row in rows)
