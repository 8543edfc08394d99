"""A process that stands for election, and writes a line to a file in each unit of work, while it may.

Arguments: where ZooKeeper is, the office's path, a name, the file. It says on its output what becomes of its terms.
"""

import sys
from pathlib import Path

from kinesis_spout.leader import HandOver, LeaderCareer, Term
from kinesis_spout.zookeeper import ZooKeeperElection, ZooKeeperSession

SESSION_TIMEOUT_SECONDS = 2.0


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


def main(hosts: str, path: str, name: str, book: str) -> None:
    session = ZooKeeperSession(hosts, session_timeout_seconds=SESSION_TIMEOUT_SECONDS)
    session.start()
    election = ZooKeeperElection("clerk", path, session, name)
    LeaderCareer(Clerk(name, Path(book)), election, idle_seconds=0.02).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
