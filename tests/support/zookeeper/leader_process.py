"""A process that stands for election, and writes a line to a file in each unit of work, while it may.

Arguments: where ZooKeeper is, its root, a name, the file. On its output it says what becomes of its terms.
"""

import sys
from pathlib import Path

from kinesis_spout.recipes.leader import HandOver, LeaderCareer, Term, stand_for

SESSION_TIMEOUT_SECONDS = 4.0


class Clerk:
    def __init__(self, name: str, book: Path) -> None:
        self._name = name
        self._book = book
        self._term: Term | None = None

    def inaugurate(self, term: Term) -> None:
        self._term = term
        _say("inaugurated")

    def execute(self) -> bool:
        assert self._term is not None
        if self._term.is_certain:
            with self._book.open("a") as book:
                book.write(f"{self._term.token} {self._name}\n")
        return False

    def hand_over(self, reason: HandOver) -> None:
        _say(reason.value)


def _say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def main(hosts: str, root: str, name: str, book: str) -> None:
    election = stand_for(
        "clerk",
        zookeeper=hosts,
        zookeeper_root=root,
        session_timeout_seconds=SESSION_TIMEOUT_SECONDS,
    )
    LeaderCareer(Clerk(name, Path(book)), election, idle_seconds=0.02).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
