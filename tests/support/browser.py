"""A browser for tests, and what looks for barriers in a page that it shows."""

import importlib.util
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

CHROMIUM: Final = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
NEEDS_BROWSER: Final = [
    pytest.mark.second_environment,
    pytest.mark.skipif(CHROMIUM is None, reason="no browser: `apt-get install chromium` gives one"),
    *(
        pytest.mark.skipif(importlib.util.find_spec(name) is None, reason=f"{name} is not installed")
        for name in ("playwright", "starlette", "uvicorn")
    ),
]
_AXE: Final = next(
    Path(__file__).parents[2].glob("localstack/.run/axe-core/*/node_modules/axe-core/axe.min.js"), None
)
NEEDS_AXE: Final = pytest.mark.skipif(_AXE is None, reason="no axe-core: `make axe` installs it, with npm")
_RUN_AXE: Final = """async () => (
  await axe.run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]})
).violations.flatMap(found => found.nodes.map(node => `${found.id}: ${node.html}: ${node.failureSummary}`))"""


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    with pytest.importorskip("playwright.sync_api").sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def barriers(page: "Page") -> list[str]:
    """What of the page breaks WCAG 2.2, A or AA, as far as a program can tell."""
    assert _AXE is not None
    page.evaluate(_AXE.read_text())  # the content policy forbids it as an element of the page
    found: Any = page.evaluate(_RUN_AXE)
    return list(found)
