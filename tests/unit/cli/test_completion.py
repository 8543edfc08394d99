"""Shells complete commands, options and the words of a setting: what Typer's scripts for them are answered."""

import subprocess
import sys

import pytest


def completed(*words: str) -> list[str]:
    """Complete the last of the words, as bash asks for it."""
    command = "from kinesis_spout.cli.app import main; main()"
    asked = {
        "_KINESIS_SPOUT_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(["kinesis-spout", *words]),
        "COMP_CWORD": str(len(words)),
    }
    done = subprocess.run(
        [sys.executable, "-c", command], env=asked, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["dead-l"], "dead-letters"),
        (["dead-letters", "redr"], "redrive"),
        (["dead-letters", "redrive", "--dry"], "--dry-run"),
        (["run", "module:handle", "--order", "unor"], "unordered"),
    ],
)
def test_a_word_is_completed(words: list[str], found: str) -> None:
    assert completed(*words) == [found]
