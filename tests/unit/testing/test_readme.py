"""The README's example of a tested handler is a test that passes."""

import re
from pathlib import Path
from typing import Any

README = Path(__file__).parents[3] / "README.md"


def test_the_example_of_a_tested_handler_passes_as_it_stands() -> None:
    _, found, section = README.read_text().partition("## Testing your handler\n")
    assert found
    (example,) = re.findall(r"```python\n(.*?)```", section.partition("\n## ")[0], re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(example, str(README), "exec"), names)
    tests = [value for name, value in names.items() if name.startswith("test_")]
    assert tests, "the example has no test"
    for test in tests:
        test()
