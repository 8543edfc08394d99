"""One thing that is checked, and where it cannot be."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.aws.scene import Scene

ENGINES: Final = ("moto", "kinesis-local")
"""The emulators whose differences are known; LocalStack has kinesis-local inside."""


_LEFT_OUT: Final = {
    "expiry": "not asked for: --expiry",
    "java": "left out: --without-java",
    "spark": "left out: --without-spark or --without-java",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A sentence about Kinesis, and what finds out whether it is true."""

    sentence: str
    run: Callable[[Scene], None]
    differs: dict[str, str]
    """Why an emulator cannot show it, by the emulator."""
    asks: str
    """A key of ``_LEFT_OUT``: it runs only if that is asked for; empty: always."""

    def skipped(self, engine: str | None, asked: frozenset[str]) -> str | None:
        """Say why it does not run; None: it runs.

        Args:
            engine: the emulator; None for AWS.
            asked: for what the user asked.
        """
        if engine in self.differs:
            return self.differs[engine]
        return None if not self.asks or self.asks in asked else _LEFT_OUT[self.asks]


def check(
    sentence: str, *, emulators: str = "", moto: str = "", asks: str = ""
) -> Callable[[Callable[[Scene], None]], Check]:
    """Make a check of a function.

    Args:
        sentence: what is true if the function returns.
        emulators: why no emulator can show it.
        moto: why moto cannot.
        asks: expiry, java or spark, if it needs that.
    """
    differs = dict.fromkeys(ENGINES, emulators) if emulators else {"moto": moto} if moto else {}

    def made(run: Callable[[Scene], None]) -> Check:
        return Check(sentence=sentence, run=run, differs=differs, asks=asks)

    return made
