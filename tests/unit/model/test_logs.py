"""Messages speak of one record and of several records."""

import pytest

from kinesis_spout.model.logs import counted


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 records"), (1, "1 record"), (2, "2 records"), (2_000, "2,000 records")]
)
def test_a_number_of_things_is_written_as_sentences_have_it(count: int, text: str) -> None:
    assert counted(count, "record") == text
