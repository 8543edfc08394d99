"""The README as its reader copies from it: the Python examples, and what is typed into a shell."""

import re
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Example:
    """A block of Python, and the line of the README that it begins at."""

    line: int
    code: str

    @property
    def functions(self) -> str:
        """What a module takes from it: all before its first statement that does something."""
        return self.code.partition("\nspout = ")[0] + "\n"


def python_examples() -> list[Example]:
    return [Example(line, code) for language, line, code in _blocks() if language == "python"]


def commands() -> list[str]:
    """What is typed after the prompt, with the comment behind it."""
    consoles = "".join(text for language, _, text in _blocks() if language == "console")
    return re.findall(r"^\$ (.+)$", consoles, re.MULTILINE)


def _blocks() -> list[tuple[str, int, str]]:
    text = (REPOSITORY / "README.md").read_text()
    return [(found[1], text.count("\n", 0, found.start(2)) + 1, found[2]) for found in _BLOCK.finditer(text)]
