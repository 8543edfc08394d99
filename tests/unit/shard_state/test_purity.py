"""The import contract names what the core must not import; this names all that it may, and no built-in I/O."""

import ast
from pathlib import Path

import pytest

import shard_state

CORE = Path(shard_state.__file__).parent
MODULES = sorted(CORE.rglob("*.py"))
PURE = {
    "base64",
    "bisect",
    "collections",
    "dataclasses",
    "enum",
    "heapq",
    "itertools",
    "json",
    "math",
    "re",
    "shard_state",
    "typing",
    "zlib",
}
IMPURE_BUILT_INS = {"__import__", "breakpoint", "compile", "eval", "exec", "input", "open", "print"}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(CORE)))
def test_a_module_of_the_core_imports_only_what_does_no_io(path: Path) -> None:
    imported: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            imported.add((node.module or "").partition(".")[0])
    assert imported <= PURE


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(CORE)))
def test_a_module_of_the_core_uses_no_built_in_that_does_io(path: Path) -> None:
    names = {node.id for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name)}
    assert not names & IMPURE_BUILT_INS


def test_every_module_is_looked_at() -> None:
    assert {"state_manager", "inflight_record_tracker", "__init__"} <= {path.stem for path in MODULES}
