"""Which dead letters a command is about."""

from dataclasses import dataclass
from typing import Annotated, Literal

import typer

from kinesis_spout.model.dead_letter import DeadLetter

Reason = Annotated[
    Literal["exhausted", "rejected", "expired"] | None, typer.Option(help="Only those given up for this.")
]
OfShard = Annotated[str | None, typer.Option("--shard", metavar="ID", help="Only those of this shard.")]
ErrorText = Annotated[
    str | None, typer.Option("--error", metavar="TEXT", help="Only those with this text in their error.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What a letter must be to be taken; None takes any."""

    reason: str | None = None
    shard_id: str | None = None
    error: str | None = None
    message_ids: frozenset[str] = frozenset()
    """Empty takes any."""

    @property
    def is_filtered(self) -> bool:
        """Whether anything but message ids narrows it."""
        return any(wanted is not None for wanted in (self.reason, self.shard_id, self.error))

    def takes(self, letter: DeadLetter) -> bool:
        """Say whether the letter is one of them."""
        return (
            self.reason in (None, letter.reason)
            and self.shard_id in (None, letter.shard_id)
            and (self.error is None or self.error in letter.error)
            and (not self.message_ids or letter.message_id in self.message_ids)
        )
