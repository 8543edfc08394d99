"""Every screen of the page without barriers: for an accessibility checker, on a phone, with a keyboard alone.

The page is served over a world of fakes, which has something of everything that it can show.
"""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.operations.watch import observation
from kinesis_spout.operations.watch.live_status import LiveComponent, LiveRetry, LiveShard, LiveStatus
from kinesis_spout.operations.world import UNNAMED
from kinesis_spout.web.app import server_of
from shard_state import SHARD_END, SequenceNumber
from tests.support.browser import NEEDS_AXE, NEEDS_BROWSER, barriers
from tests.support.waiting import DEADLINE_SECONDS, wait_until
from tests.unit.web.page_world import FIRST, HOME, SECOND, PageWorld

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = NEEDS_BROWSER

TOKEN = "0123456789abcdef-token"
LOOKS = [(width, scheme) for width in (1280, 400) for scheme in ("light", "dark")]
LETTER = f"/letter?id={FIRST}:1"
SCREENS = (
    "", "?state=stalled&sort=-lag", "?find=nothing", f"/shards/{FIRST}?records=5", f"/shards/{SECOND}",
    "/letters", "/letters?kind=nothing", "/letters?state=dismissed", LETTER, f"{LETTER}&as=hex", "/redrives",
    "/redrives/1", "/topology", "/audit", "/pause", "/resume", f"/pause?shard={SECOND}",
    "/drain?member=worker", "/undrain?member=drained", "/redrive", f"/redrive?id={FIRST}:1", "/dismiss",
    f"/dismiss?id={FIRST}:2", "?all=attention", "/reset?to=latest", "/nothing",
)  # fmt: skip
FOCUSABLE = """[...document.querySelectorAll("a[href], button, input, select, textarea, summary")].filter(each =>
    each.tabIndex >= 0 && each.type !== "hidden" && each.checkVisibility())"""
FOCUSED = """(() => {
    const at = document.activeElement, style = getComputedStyle(at), box = at.getBoundingClientRect();
    const isSeen = box.bottom > 0 && box.right > 0 && box.top < innerHeight && box.left < innerWidth;
    return [at.outerHTML, isSeen && style.outlineStyle === "solid" && parseFloat(style.outlineWidth) >= 2];
})()"""


def busy_world(monkeypatch: pytest.MonkeyPatch, shards: int = 4) -> PageWorld:
    """A world of one application where shards stand still, fail, wait and are paused."""
    world = PageWorld(shards=shards)
    world.others = [("audit", "orders"), ("shipping", "orders")]
    worker = world.member("worker")
    world.member("drained")
    world.zookeeper.drained.add("drained")
    world.put(20)
    holes = ((SequenceNumber(20), SequenceNumber(30)),)
    world.store(worker, FIRST, base=SequenceNumber(10), holes=holes, attempts=((SequenceNumber(12), 3),))
    for shard_id in world.shard_ids[1:]:
        world.store(worker, shard_id)
    closed = world.shard_ids[-1]
    world.kinesis.split(closed)
    world.store(worker, world.shard_ids[-3], base=SHARD_END)
    world.zookeeper.paused.add(world.shard_ids[2])
    world.bury(1, 2, error="ValueError: negative amount", traceback="  File orders.py", data=b'{"n": 1}')
    world.bury(3, error="KeyError: 'amount'", reason="rejected")
    why = "has not moved for 95 s: 3 in flight, 95.0 s behind the tip"
    status = LiveStatus(
        records_per_second=1234.5,
        in_flight=7,
        lag_millis=95_000,
        last_error="ValueError: no",
        shards=(
            LiveShard(shard_id=SECOND, lag_millis=95_000, stalled=True, reason=why),
            LiveShard(shard_id=FIRST, lag_millis=3_000, stalled=False, phase="reading", in_flight=3),
        ),
        retrying=(
            LiveRetry(shard_id=FIRST, sequence_number="12", attempts=3, kind="KeyError", due_in_seconds=4.0),
        ),
        components={"split": LiveComponent(executed=5, execute_latency=0.5)},
    )
    told = {"worker": status, "drained": LiveStatus(problem="127.0.0.1:1 does not answer")}
    monkeypatch.setattr(observation, "ask_members", lambda _members, _config: told)
    return world


@contextmanager
def served(world: PageWorld, *names: str, **settings: Any) -> Iterator[str]:
    world.browser(*names, **settings)
    listener = socket.create_server(("127.0.0.1", 0))
    server = server_of(world.page, world.page.state.pages.settings)
    thread = Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(DEADLINE_SECONDS)
        listener.close()


@pytest.fixture
def page(browser: "Browser", request: pytest.FixtureRequest) -> "Iterator[Page]":
    look: tuple[int, Any] = getattr(request, "param", (1280, "light"))
    width, scheme = look
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    context.set_default_timeout(1000 * DEADLINE_SECONDS)
    yield context.new_page()
    context.close()


def check(page: "Page", where: str) -> list[str]:
    """Look at what is shown; give a line for each thing that is wrong."""
    wrong = [f"{where}: {found}" for found in barriers(page)]
    if (headings := page.locator("h1").count()) != 1:
        wrong.append(f"{where}: expected one h1, found {headings}")
    wide, width = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    if wide > width:
        wrong.append(f"{where}: is {wide} px wide")
    return wrong


@NEEDS_AXE
@pytest.mark.parametrize("page", LOOKS, indirect=True)
def test_no_screen_has_a_barrier(page: "Page", monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = []
    world = busy_world(monkeypatch)
    with served(world, allow_changes=True, show_data=True) as address:
        slowly: dict[str, str | float | bool] = {"why": "mended", "count": "2", "rate": "0.01"}
        page.request.post(
            f"{address}{HOME}/redrive?kind=ValueError", form=slowly, headers={"sec-fetch-site": "same-origin"}
        )
        for screen in SCREENS:
            page.goto(address + HOME + screen)
            wrong += check(page, screen)
        page.goto(f"{address}{HOME}/redrive")
        page.fill("#why", "mended")
        page.fill("#count", "7")
        page.click("button.go")
        page.wait_for_selector("[role=alert]:visible")
        wrong += check(page, "a form that is refused")
        page.goto(address + HOME)
        page.route("**/*", lambda route: route.abort())
        page.wait_for_selector("#stale")
        wrong += check(page, "a page that is not renewed")
        page.unroute("**/*")
    with served(world, UNNAMED, UNNAMED, token=TOKEN) as address:
        page.goto(address)
        wrong += check(page, "signing in")
        page.fill("#name", "ann")
        page.fill("#token", "another")
        page.click("button.go")
        page.wait_for_selector("[role=alert]:visible")
        wrong += check(page, "a wrong token")
        page.fill("#token", TOKEN)
        page.click("button.go")
        page.wait_for_selector("h1:has-text('Applications')")
        wrong += check(page, "applications")
        page.goto(f"{address}{HOME}/pause")
        wrong += check(page, "a change that is not allowed")
        page.goto(f"{address}{HOME}")
        wrong += check(page, "an application that is only shown")
    assert not wrong, "\n".join(wrong)
    quiet = PageWorld()
    quiet.member().close()
    with served(quiet, allow_changes=True) as address:
        for screen in ("", "/letters", "/redrives", "/audit", "/topology", "/reset?to=trim_horizon"):
            page.goto(address + HOME + screen)
            wrong += check(page, f"nobody: {screen}")
        quiet.zookeeper.set_available(False)
        quiet.forget_readings()
        page.goto(address + HOME)
        wrong += check(page, "an outage")
    assert not wrong, "\n".join(wrong)


@NEEDS_AXE
@pytest.mark.parametrize("page", LOOKS, indirect=True)
def test_an_application_of_a_thousand_shards_has_no_barrier(
    page: "Page", monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(busy_world(monkeypatch, shards=1_000), allow_changes=True) as address:
        page.goto(address + HOME)
        assert check(page, "a thousand shards") == []


@NEEDS_AXE
def test_the_checker_finds_text_that_can_hardly_be_read(page: "Page") -> None:
    page.set_content("<html lang='en'><title>x</title><p style='color: #bbb; background: #fff'>text</p>")
    (found,) = barriers(page)
    assert found.startswith("color-contrast: ")


@pytest.mark.parametrize("page", [(1280, "light"), (400, "dark")], indirect=True)
def test_a_keyboard_reaches_each_control_once_in_its_order_and_shows_where_it_is(
    page: "Page", monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(busy_world(monkeypatch), allow_changes=True) as address:
        for screen in ("", f"/shards/{FIRST}", "/letters", LETTER, "/audit", "/redrive", "/reset?to=latest"):
            page.goto(address + HOME + screen)
            page.route(
                "**/*", lambda route: route.abort()
            )  # what is renewed meanwhile may be another control
            wanted = page.evaluate(f"{FOCUSABLE}.map(each => each.outerHTML)")
            reached, unseen = [], []
            for _ in wanted:
                page.keyboard.press("Tab")
                control, is_seen = page.evaluate(FOCUSED)
                reached.append(control)
                if not is_seen:
                    unseen.append(control)
            page.unroute("**/*")
            assert reached == wanted, screen
            assert unseen == [], screen


def test_with_enter_alone_a_member_is_drained(page: "Page", monkeypatch: pytest.MonkeyPatch) -> None:
    world = busy_world(monkeypatch)
    with served(world, allow_changes=True) as address:
        page.goto(address + HOME)
        page.focus("text=Drain…")
        page.keyboard.press("Enter")
        page.wait_for_url("**/drain?member=worker")
        page.focus("#why")
        page.keyboard.type("tired")
        page.keyboard.press("Enter")
        wait_until(lambda: "worker" in world.zookeeper.drained, "the drain")


def test_a_session_that_ended_is_said_and_signing_in_at_another_window_renews_the_page(
    page: "Page", monkeypatch: pytest.MonkeyPatch
) -> None:
    def sign_in(window: "Page") -> None:
        window.fill("#name", "ann")
        window.fill("#token", TOKEN)
        window.click("button.go")
        window.wait_for_selector("h1:has-text('Shards')")

    with served(busy_world(monkeypatch), token=TOKEN) as address:
        page.goto(address + HOME)
        sign_in(page)
        page.context.clear_cookies()
        page.wait_for_selector("#stale")
        assert page.inner_text("#stale").endswith("your session has ended. Sign in again.")
        other = page.context.new_page()
        other.goto(address + HOME)
        sign_in(other)
        page.wait_for_selector("#stale", state="hidden")
        page.context.clear_cookies()
        page.click("text=Sign in again.")
        sign_in(page)
        assert page.url == address + HOME
