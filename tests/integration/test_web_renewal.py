"""The page's own script: it renews what has changed, says how old the page is, and when it cannot be renewed.

The answers are the tests'; no server runs.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import kinesis_spout.web
from tests.support.browser import NEEDS_BROWSER
from tests.support.waiting import DEADLINE_SECONDS, wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

    Answering = Callable[[Route], None]

pytestmark = NEEDS_BROWSER

STATIC = Path(kinesis_spout.web.__file__).with_name("static")
PAGE = """<!doctype html><html><head><title>Live</title><link rel="stylesheet" href="/static/page.css">
<script src="/static/page.js" type="module"></script></head><body>
<p id="stale" role="alert" hidden></p>
<main><div data-live="/live">{}</div><p data-kept>{}</p></main>
<footer><span id="read" data-seconds="{}">read <time>now</time></span></footer></body></html>"""
BEFORE = """<table><thead><tr><th><a href="?sort=-lag">lag</a></th></tr></thead>
<tr data-key="a"><td><a href="/a">first</a></td></tr>
<tr data-key="b"><td><a href="/b">second</a></td><td id="kept">selected</td></tr></table>
<p class="legend"><a href="?state=reading">reading 2</a></p><dialog open><button>Stop</button></dialog>
<details><summary>more</summary><p>1</p></details><input id="typed" value=""><p style="height: 3000px"></p>"""
AFTER = """<p class="new">news</p><table><thead><tr><th><a href="?sort=-lag">lag</a></th></tr></thead>
<tr data-key="b"><td><a href="/b">second</a></td><td id="kept">selected</td></tr>
<tr data-key="c"><td><a href="/c">third</a></td></tr></table>
<p class="legend"><a href="?state=stalled">stalled 1</a><a href="?state=reading">reading 1</a></p>
<dialog><button>Stop</button></dialog>
<details><summary>more</summary><p>2</p></details><input id="typed" value=""><p style="height: 3000px"></p>"""


class Site:
    """One live page, and how its renewals are answered. Mutable."""

    def __init__(self, page: "Page") -> None:
        self.page = page
        self.body, self.kept, self.seconds = BEFORE, "kept", 0.0
        self.answering: Answering = self.show
        self.asked: list[str | None] = []
        """The tags that came with the renewals."""
        page.set_default_timeout(1000 * DEADLINE_SECONDS)
        page.route("**/live", self._answer)
        for name in ("page.js", "page.css"):
            page.route(f"**/static/{name}", partial(_send, STATIC / name))
        page.goto("http://page.example/live")

    def show(self, route: "Route") -> None:
        """Answer with the page as it is now; the tag is the text's."""
        tag = f'W/"{hash((self.body, self.kept))}"'
        if route.request.headers.get("if-none-match") == tag:
            route.fulfill(status=304, headers={"etag": tag, "x-read-seconds": str(self.seconds)})
            return
        body = PAGE.format(self.body, self.kept, self.seconds)
        route.fulfill(body=body, content_type="text/html", headers={"etag": tag})

    def renewed(self) -> None:
        """Wait for an answer to a question that is asked from now on."""
        count = len(self.asked)
        wait_until(lambda: self._passes() and len(self.asked) > count + 1, "two renewals")

    def _passes(self) -> bool:
        return self.page.evaluate("true") is True  # playwright answers the routes meanwhile

    def _answer(self, route: "Route") -> None:
        if route.request.is_navigation_request():
            self.show(route)
            return
        self.asked.append(route.request.headers.get("if-none-match"))
        self.answering(route)

    @property
    def age(self) -> str:
        return self.page.inner_text("#read")

    def is_grey(self) -> bool:
        return bool(self.page.evaluate("getComputedStyle(document.querySelector('main')).filter !== 'none'"))


def _send(file: Path, route: "Route") -> None:
    route.fulfill(path=file)


@pytest.fixture
def site(browser: "Browser") -> Iterator[Site]:
    page = browser.new_page()
    yield Site(page)
    page.close()


@pytest.mark.parametrize(
    "focused", ["a[href='/b']", "a[href='?sort=-lag']", "a[href='?state=reading']", "dialog button", "#typed"]
)
def test_a_renewal_touches_only_what_has_changed(site: Site, focused: str) -> None:
    """Focus, selection, scroll, what is typed and what is open stay, although rows came, went and moved."""
    page = site.page
    page.focus("summary")
    page.keyboard.press("Enter")
    page.fill("#typed", "half a wo")
    page.focus(focused)
    page.evaluate("getSelection().selectAllChildren(document.getElementById('kept'))")
    page.evaluate("scrollTo(0, 400)")
    before = page.evaluate("document.querySelector('#typed').getBoundingClientRect().top")
    site.body, site.kept = AFTER, "another"
    page.wait_for_selector(".new")
    assert page.locator("tr").all_inner_texts() == ["lag", "second\tselected", "third"]
    assert page.inner_text("details p") == "2"
    assert page.inner_text("[data-kept]") == "kept"
    assert page.locator("dialog[open]").count() == 1
    assert page.input_value("#typed") == "half a wo"
    assert page.evaluate(
        "([at, it]) => at.matches(it)", [page.evaluate_handle("document.activeElement"), focused]
    )
    assert page.evaluate("getSelection().toString().trim()") == "selected"
    after = page.evaluate("document.querySelector('#typed').getBoundingClientRect().top")
    assert abs(after - before) < 100, "what is looked at moves by no more than the new line"
    site.body = BEFORE
    page.wait_for_selector(".new", state="detached")


def test_an_unchanged_page_is_not_sent_again_and_is_as_old_as_the_server_says(site: Site) -> None:
    site.renewed()
    site.seconds = 40.0
    wait_until(lambda: site.age == "read 40 s ago", "the age of the reading")
    assert site.asked[-1] is not None
    assert not site.is_grey()


def gone(route: "Route") -> None:
    route.abort("connectionrefused")


def broken(route: "Route") -> None:
    route.fulfill(status=503, body='<p role="alert">ZooKeeper is unavailable</p>', content_type="text/html")


def of_a_proxy(route: "Route") -> None:
    route.fulfill(body="<h1>busy</h1>", content_type="text/html")


def hangs(route: "Route") -> None:
    del route


def forbids(route: "Route") -> None:
    route.fulfill(status=403, body="no")


def leads_away(route: "Route") -> None:
    route.fulfill(status=303, headers={"location": "/login?next=%2Flive"})


@pytest.mark.parametrize(
    ("answering", "why"),
    [
        (gone, "the server does not answer."),
        (hangs, "the server does not answer within 6 s."),
        (broken, "the server answers 503: ZooKeeper is unavailable."),
        (of_a_proxy, "the server answers 200."),
        (forbids, "the server does not let you in any more. Sign in again."),
        (leads_away, "the server does not let you in any more. Sign in again."),
    ],
)
def test_a_page_that_cannot_be_renewed_greys_says_since_when_and_why_and_recovers_by_itself(
    site: Site, answering: "Answering", why: str
) -> None:
    page = site.page
    assert site.age == "read now"
    site.answering = answering
    page.wait_for_selector("#stale")
    said = page.inner_text("#stale")
    assert said.startswith("Not renewed since ")
    assert said.endswith(why)
    assert site.is_grey()
    if answering in (forbids, leads_away):
        assert page.get_attribute("#stale a", "href") == page.url
    elif answering is not hangs:
        assert len(site.asked) >= 3
    wait_until(lambda: site.age not in ("read now", "read 1 s ago"), "the age counts")
    site.answering = site.show
    page.wait_for_selector("#stale", state="hidden")
    assert not site.is_grey()
    wait_until(lambda: site.age in ("read now", "read 1 s ago", "read 2 s ago"), "the age of the renewal")


def test_nothing_is_asked_for_while_the_page_is_hidden(browser: "Browser") -> None:
    page = browser.new_page()
    page.add_init_script("Object.defineProperty(document, 'hidden', {get: () => window.isAway ?? false})")
    page.clock.install()
    site = Site(page)
    page.evaluate("window.isAway = true")
    page.clock.run_for(60_000)
    assert site.asked == []
    assert site.age == "read 60 s ago"
    page.evaluate(
        "window.isAway = false; document.dispatchEvent(new Event('visibilitychange', {bubbles: true}))"
    )
    wait_until(lambda: site.age == "read now", "the renewal")
    page.close()
