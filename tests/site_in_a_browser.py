"""Looks at every page of the built documentation in a browser: wide and narrow, in light and in dark.

``make test-docs``. A page must not scroll sideways, must draw its diagrams, and must ask no other host for
anything. Prints what is wrong, and ends with 1 then.
"""

import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Final

from playwright.sync_api import sync_playwright

from tests.support.browser import CHROMIUM

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Request

_SITE: Final = Path(__file__).parents[1] / "site"
_LOOKS: Final = ((1280, "light"), (400, "dark"))
_UNDRAWN: Final = "document.querySelector('pre.mermaid') !== null"
_OWN: Final = ("data:", "blob:")


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name that it has
        pass


def _note(asked: list[str], request: "Request") -> None:
    asked.append(request.url)


def _note_error(asked: list[str], error: Exception) -> None:
    asked.append(f"a script ended with {error}")


def look(browser: "Browser", address: str, pages: list[str]) -> Iterator[str]:
    """Open the pages one after the other; yields a line for each thing that is wrong."""
    for width, scheme in _LOOKS:
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
        asked: list[str] = []
        page.on("request", partial(_note, asked))
        page.on("pageerror", partial(_note_error, asked))
        for name in pages:
            page.goto(address + name)
            page.wait_for_load_state("networkidle")
            scrolled = page.evaluate("document.documentElement.scrollWidth")
            if scrolled > width:
                yield f"{name} at {width} px: expected no sideways scroll, is {scrolled} px wide"
            if page.evaluate(_UNDRAWN):
                yield f"{name} at {width} px: a diagram was not drawn"
            yield from (f"{name}: {url}" for url in asked if not url.startswith((address, *_OWN)))
            asked.clear()
        page.close()


def main() -> int:
    """Serve the site on loopback and look at it."""
    pages = [str(each.parent.relative_to(_SITE)) + "/" for each in sorted(_SITE.rglob("index.html"))]
    assert CHROMIUM, "no browser: `apt-get install chromium` gives one"
    assert pages, f"no page in {_SITE}: run `make docs`"
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=_SITE)) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            wrong = list(look(browser, f"http://127.0.0.1:{server.server_port}/", pages))
        server.shutdown()
    print(*wrong, f"{len(pages)} pages, {len(wrong)} things wrong", sep="\n")  # noqa: T201 - what it is for
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
