"""The examples of the documentation that need neither Spark nor a server."""

import re
from pathlib import Path
from typing import Any

import pytest

from kinesis_spout.testing import run

DOCS = Path(__file__).parents[2] / "docs"


def example(page: str) -> str:
    """Give the one Python example of a page."""
    (block,) = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    return str(block)


def test_the_test_of_a_handler_passes_as_it_stands() -> None:
    exec(example("how-to/test-a-handler.md"), {"__name__": "__main__"})


def test_the_handler_of_the_tutorial_fails_the_one_record_that_is_bad(
    capsys: pytest.CaptureFixture[str],
) -> None:
    names: dict[str, Any] = {}
    exec(example("tutorial.md"), names)
    orders = [
        f'{{"id": {number}, "amount": {-1 if number == 13 else number}}}'.encode() for number in range(1, 21)
    ]
    outcomes = list(run(names["bill"], orders, retry_limit=1))
    (bad,) = (outcome for outcome in outcomes if not outcome.acked)
    assert (bad.dead_lettered, bad.attempts) == (True, 2)
    assert bad.error == "ValueError: order 13: negative amount"
    assert capsys.readouterr().out.count("charging") == 19


def test_every_example_of_the_documentation_is_one_of_these() -> None:
    """The README's are run from the wheel; a page that grows another needs a test."""
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md") if "```python" in page.read_text()}
    assert pages == {"how-to/test-a-handler.md", "tutorial.md"}
