"""The README and the pages of docs/ as their reader copies from them: Python, and what is typed into a shell."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
TUTORIAL = "docs/tutorial.md"
"""Its blocks are one story: each needs those before it."""

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PROMPT, _MORE = "$ ", "> "


@dataclass(frozen=True, slots=True)
class Block:
    """What stands between two fences, and where: the page, and the line that it begins at."""

    page: str
    line: int
    language: str
    text: str

    @property
    def functions(self) -> str:
        """What a module takes from an example: all before its first statement that does something."""
        return self.text.partition("\nspout = ")[0] + "\n"

    @property
    def commands(self) -> list[str]:
        """What is typed after each prompt, with the comment behind it."""
        return [typed for typed, _ in self._lines()]

    @property
    def output(self) -> list[str]:
        """What the page says that is shown, without what it leaves out."""
        return [line for _, shown in self._lines() for line in shown if line.strip() != "..."]

    def _lines(self) -> list[tuple[str, list[str]]]:
        found: list[tuple[str, list[str]]] = []
        for line in self.text.splitlines():
            typed, shown = found[-1] if found else ("", [])
            if line.startswith(_PROMPT):
                found.append((line.removeprefix(_PROMPT), []))
            elif not shown and (line.startswith(_MORE) or typed.endswith("\\")):
                found[-1] = (f"{typed}\n{line.removeprefix(_MORE)}", [])
            else:
                shown.append(line)
        return found


def python_examples() -> list[Block]:
    """Every example that stands for itself; one that several pages have, once."""
    examples = [block for block in _blocks() if block.language == "python" and block.page != TUTORIAL]
    return list({block.text: block for block in reversed(examples)}.values())[::-1]


def commands() -> list[str]:
    """Every line that is typed, but for the tutorial's; one that several pages have, once."""
    consoles = [block for block in _blocks() if block.language == "console" and block.page != TUTORIAL]
    typed = [command for block in consoles for command in block.commands]
    return list({command.partition(" #")[0].strip(): command for command in reversed(typed)}.values())[::-1]


def sizes_on_disk(command: str) -> list[int]:
    """The megabytes that pages say, on the same line, that a command takes."""
    return [
        int(size)
        for path in _pages()
        for line in path.read_text().splitlines()
        if f"`{command}`" in line
        for size in re.findall(r"(\d+) MB\b", line)
    ]


def tutorial() -> list[Block]:
    """What its reader does, step by step."""
    return [block for block in _blocks() if block.page == TUTORIAL]


def first_missing(expected: list[str], output: str) -> str | None:
    """Look for lines in an output, in their order; ``...`` stands for anything, and blanks may be more."""
    at = 0
    for line in expected:
        pattern = re.sub(r"(\\ )+", r"[ ]+", re.escape(line)).replace(r"\.\.\.", ".*")
        found = re.compile(pattern).search(output, at)
        if found is None:
            return line
        at = found.end()
    return None


def _pages() -> list[Path]:
    return [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]


def _blocks() -> Iterator[Block]:
    for path in _pages():
        text, page = path.read_text(), str(path.relative_to(REPOSITORY))
        for found in _BLOCK.finditer(text):
            yield Block(page, text.count("\n", 0, found.start(2)) + 1, found[1], found[2])
