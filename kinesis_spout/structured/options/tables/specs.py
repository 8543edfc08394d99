"""What an option is: its spellings, where it applies, what it takes. The table itself is in ``table``."""

from dataclasses import dataclass
from enum import Enum, StrEnum


class Use(Enum):
    """What the options are given to. The value is how a message calls it."""

    STREAM_READ = "streaming reads (spark.readStream)"
    BATCH_READ = "batch reads (spark.read)"
    WRITE = "writes (df.write, df.writeStream)"


class Kind(StrEnum):
    """What the text of an option is read as. The value says what is allowed, for messages and tables."""

    TEXT = "text"
    LIST = "a comma-separated list"
    FLAG = "true or false"
    CHOICE = "one of"
    COUNT = "a whole number"
    DURATION = "a duration such as 200ms, 10s, 5m or 1h"
    SIZE = "a size such as 500k, 8m or 1g, or a number of bytes"
    RATE = "a number of MB/s"
    URL = "an http:// or https:// URL"
    START = "latest, trim_horizon, earliest, or JSON with a time or with a position per shard"
    END = "latest, or JSON with a time or with a position per shard"


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionSpec:
    """One option. Spellings are compared without regard to case, as Spark compares options."""

    name: str
    aliases: tuple[str, ...] = ()
    """Other connectors' spellings. Where one ends in ``Ms``, a bare number under it means milliseconds."""
    uses: frozenset[Use]
    kind: Kind
    default: str | None = None
    """As a user would write it; None where the option may be left out and then has no value."""
    unset: str = ""
    """What holds when there is no default and nothing is given, for the table."""
    at_least: str | None = None
    at_most: str | None = None
    """Bounds, written as a user would write them; both are allowed values."""
    choices: tuple[str, ...] = ()
    secret: bool = False
    """Its value appears in no message."""
    doc: str

    @property
    def allowed(self) -> str:
        """What the option takes, in words."""
        text = self.kind.value
        if self.choices:
            text += f" {'' if self.kind is Kind.CHOICE else 'of '}{', '.join(self.choices)}"
        if self.kind is Kind.CHOICE and len(self.choices) == 1:
            text = self.choices[0]
        if self.at_least is not None and self.at_most is not None:
            return f"{text}, {self.at_least} to {self.at_most}"
        if self.at_least is not None:
            return f"{text}, at least {self.at_least}"
        return text if self.at_most is None else f"{text}, at most {self.at_most}"
