"""How a letter is stored. The golden files are what earlier releases wrote: they stay readable for ever.

A letter has no version: what was added later is missing in older ones, and older releases pass over it.
"""

from pathlib import Path

import msgspec
import pytest

from kinesis_spout.dead_letters.stored_letters import decoded, encoded
from tests.support.consumer.letters import letter

GOLDEN = Path(__file__).parents[2] / "golden"
FORMS = {
    "dead_letter_first": letter(),
    "dead_letter_traceback": letter(partition_key=None, traceback="in bill"),
    "dead_letter_explicit_hash_key": letter(
        sequence_number="7:3", traceback="in bill", explicit_hash_key=str(2**128 - 1)
    ),
}
"""By their files, the oldest first."""


@pytest.mark.parametrize("form", FORMS)
def test_the_golden_files_stay_readable(form: str) -> None:
    golden = (GOLDEN / f"{form}.json").read_bytes().rstrip(b"\n")
    assert decoded("file", golden) == FORMS[form]


def test_every_golden_file_is_tried() -> None:
    assert {path.stem for path in GOLDEN.glob("dead_letter_*.json")} == FORMS.keys()


def test_the_newest_is_what_is_written() -> None:
    newest = list(FORMS)[-1]
    assert encoded(FORMS[newest]) + b"\n" == (GOLDEN / f"{newest}.json").read_bytes()


def test_a_letter_of_a_later_release_is_read_without_what_is_new_in_it() -> None:
    later = msgspec.json.decode(encoded(letter())) | {"of_a_later_release": 7}
    assert decoded("file", msgspec.json.encode(later)) == letter()
