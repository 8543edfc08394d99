"""Stories of an operator, in a real browser, against a real ZooKeeper, an endpoint and dead letters on disk.

The page is the command `kinesis-spout web` in a process of its own. Every story has an application and a stream of
its own; the browser is one for all.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from examples.demo.processes.endpoint import free_ports
from kinesis_spout.plain.record_spout import RecordSpout
from kinesis_spout.zookeeper import EmbeddedZooKeeper
from tests.support.browser import NEEDS_BROWSER
from tests.support.kinesis.endpoints import KinesisEndpoint
from tests.support.waiting import DEADLINE_SECONDS, wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [*NEEDS_BROWSER, pytest.mark.zookeeper, pytest.mark.endpoint]

ROOT = "web-browser"
COMMAND = [sys.executable, "-c", "from kinesis_spout.cli.app import main; main()"]
FIRST_LETTER = "section:has(#letters) tbody a >> nth=0"
PATIENCE_MILLIS = 1000 * DEADLINE_SECONDS


@dataclass
class Shop:
    """An application with a consumer in this process, which a test makes fail as it wants."""

    endpoint: KinesisEndpoint
    settings: dict[str, Any]
    app: str
    stream: str
    held: set[str] = field(default_factory=set)
    """Shards whose records are never acked."""
    done: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    @property
    def home(self) -> str:
        return f"/a/{self.app}/{self.stream}"

    def put(self, *orders: dict[str, Any]) -> None:
        records = [
            {"Data": json.dumps(each).encode(), "PartitionKey": f"key-{each['order']}"} for each in orders
        ]
        self.endpoint.client().put_records(StreamName=self.stream, Records=records)  # type: ignore[arg-type]

    def open(self) -> None:
        self._stop.clear()
        self._thread = threading.Thread(target=self._consume)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(DEADLINE_SECONDS)

    def sell(self, count: int, **more: Any) -> None:
        """Have so many orders come to their end."""
        wanted = len(self.done) + count * (2 if "error" in more else 1)  # what fails is tried once more
        self.put(*({"order": number, **more} for number in range(count)))
        wait_until(lambda: len(self.done) >= wanted, "the orders")

    def _consume(self) -> None:
        with RecordSpout(scheme="text", app=self.app, stream=self.stream, **self.settings).open() as spout:
            while not self._stop.is_set():
                emitted = spout.next_tuple()
                if emitted is None:
                    self._stop.wait(0.01)
                    continue
                order = json.loads(emitted.values)
                if emitted.message_id.partition(":")[0] in self.held:
                    continue
                if "error" in order:
                    spout.fail(
                        emitted.message_id, {"value": ValueError, "key": KeyError}[order["error"]]("no")
                    )
                else:
                    spout.ack(emitted.message_id)
                self.done.append(emitted.values)


@pytest.fixture(scope="module")
def settings(zookeeper_server: EmbeddedZooKeeper, moto_server: KinesisEndpoint) -> dict[str, Any]:
    return {
        "zookeeper": zookeeper_server.connect_string,
        "zookeeper_root": ROOT,
        "region": moto_server.settings.region,
        "endpoint_url": moto_server.settings.endpoint_url,
        "aws_access_key_id": moto_server.settings.aws_access_key_id,
        "aws_secret_access_key": moto_server.settings.aws_secret_access_key,
        "session_timeout_seconds": 10.0,
    }


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("web")


@pytest.fixture(scope="module")
def address(settings: dict[str, Any], directory: Path) -> Iterator[str]:
    """The page of all applications, which may be changed and show masked data."""
    variables = {f"KINESIS_SPOUT_{name.upper()}": str(value) for name, value in settings.items()}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KINESIS_SPOUT_")}
    arguments = ["web", "--http", "127.0.0.1:0", "--allow-changes", "--show-data", "--mask", "card"]
    process = subprocess.Popen(
        [*COMMAND, *arguments], cwd=directory, env=kept | variables, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        found = re.fullmatch(r"the page is at (http://127\.0\.0\.1:\d+)/\n", line)
        assert found is not None, line + (process.stderr.read() if process.poll() is not None else "")
        yield found[1]
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_SECONDS) == 130
        assert "Traceback" not in process.stderr.read()
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


@pytest.fixture
def shop(
    moto_server: KinesisEndpoint, settings: dict[str, Any], directory: Path, request: pytest.FixtureRequest
) -> Iterator[Shop]:
    app = re.sub(r"\W+", "-", request.node.name)[:60]
    stream = moto_server.create_stream(shards=2)
    shop = Shop(
        endpoint=moto_server,
        settings=settings
        | {
            "initial_position": "trim_horizon",
            "retry_limit": 1,
            "retry_backoff_seconds": 0.05,
            "commit_interval_seconds": 0.1,
            "max_spared_seconds": 0,
            "http": f"127.0.0.1:{free_ports(1)[0]}",
            "stalled_after_seconds": 2.0,
            "dead_letters": str(directory / f".kinesis-spout/{app}/{stream}/dead-letters"),
        },
        app=app,
        stream=stream,
    )
    shop.open()
    try:
        shop.sell(4)
        yield shop
    finally:
        shop.close()


Visit = Callable[..., "Page"]


@pytest.fixture
def visit(browser: "Browser", address: str) -> Iterator[Visit]:
    """Open a page in a window of its own. At the end no window may have met an error or the content policy."""
    contexts, said = [], []

    def open_page(path: str, **options: Any) -> "Page":
        context = browser.new_context(base_url=address, **options)
        context.set_default_timeout(PATIENCE_MILLIS)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(path)
        return page

    yield open_page
    for context in contexts:
        context.close()
    # Of a form that is shown again, with what was wrong, browsers note the status.
    assert [each for each in said if "status of 400" not in each] == []


def fill(page: "Page", **fields: str) -> None:
    for name, value in fields.items():
        page.fill(f"#{name}", value)


def text(page: "Page") -> str:
    return page.inner_text("main")


def await_text(page: "Page", words: str) -> None:
    """Wait until the page says it: after a click the next one may not be here, or not all of it."""
    wait_until(lambda: words in text(page), f"{words!r} on the page")


def await_chosen(page: "Page", count: int) -> None:
    wait_until(
        lambda: page.inner_text("#letters").split()[:2] == ["Chosen", str(count)],
        f"{count} letters are chosen",
    )


def letters_of(shop: Shop, page: "Page", count: int, more: int | None = None, **order: Any) -> None:
    """Have records die, and see on the screen of dead letters that ``count`` are there."""
    shop.sell(count if more is None else more, **order)

    def are_there() -> bool:
        page.goto(f"{shop.home}/letters")
        return page.inner_text("h1").endswith(f" {count}")

    wait_until(are_there, "the dead letters", every_seconds=0.5)


def test_the_shard_that_is_stuck_is_found(visit: Visit, shop: Shop) -> None:
    stuck = "shardId-000000000001"
    shop.held.add(stuck)
    shop.put(*({"order": number} for number in range(40)))
    page = visit("/")
    page.click(f"a:has-text('{shop.app}')")
    first = "#table tbody tr >> nth=0"
    wait_until(lambda: page.inner_text(first).split()[:2] == [stuck, "stalled"], "what stands still is first")
    page.click("th >> text=shard")
    page.wait_for_url("**sort=shard**")
    wait_until(lambda: not page.inner_text(first).startswith(stuck), "the order of the shards")
    page.click(f"[id='{stuck}']")
    page.wait_for_selector(f"h1:has-text('{stuck}'):has-text('stalled')")
    await_text(page, "in flight")
    shop.close()
    shop.held.clear()
    shop.open()
    page.wait_for_selector(f"h1:has-text('{stuck}'):has-text('reading')")


def test_a_shard_is_paused_and_resumed_and_the_consumer_obeys(visit: Visit, shop: Shop) -> None:
    shard = "shardId-000000000000"
    page = visit(f"{shop.home}/shards/{shard}")
    page.click("text=Pause this shard…")
    fill(page, why="the shop floor is wet")
    page.click("button.go")
    page.wait_for_selector("h1 .state:has-text('paused by an operator')")
    page.click("text=Resume this shard…")
    fill(page, why="it is dry")
    page.click("button.go")
    page.wait_for_selector("h1 .state:has-text('reading')")
    shop.sell(10)


def test_the_whole_application_is_paused_and_another_window_shows_it_by_itself(
    visit: Visit, shop: Shop
) -> None:
    other = visit(shop.home)
    page = visit(shop.home)
    page.click("text=Pause all…")
    page.click("button.go")  # the browser asks for the reason
    page.wait_for_url("**/pause")
    fill(page, why="an incident")
    page.click("button.go")
    other.wait_for_selector("text=The whole application is paused by an operator")
    page.click("text=Resume all…")
    fill(page, why="it is over")
    page.click("button.go")
    other.wait_for_selector("text=The whole application is paused by an operator", state="detached")


def test_a_letter_is_looked_at_with_its_traceback_and_masked_data(visit: Visit, shop: Shop) -> None:
    page = visit(f"{shop.home}/letters")
    await_text(page, "There are none")
    letters_of(shop, page, 1, error="value", card="4242", note="hello")
    page.click(FIRST_LETTER)
    await_text(page, "ValueError: no")
    await_text(page, '"note": "hello"')
    page.click("text=hex")
    await_text(page, "6e 6f 74 65")
    for form in ("json", "text", "hex"):
        page.click(f".legend >> text={form}")
        assert "4242" not in page.content()
        assert "34 32 34 32" not in text(page)


def test_letters_are_redriven_one_by_filter_and_all_with_a_stop(visit: Visit, shop: Shop) -> None:
    page = visit(f"{shop.home}/letters")
    shop.sell(30, error="value")
    letters_of(shop, page, 33, more=3, error="key")
    shop.close()  # nobody dead-letters what comes back
    page.click("table tbody a:has-text('KeyError')")
    await_chosen(page, 3)
    assert "kind=KeyError" in page.url
    # one
    page.click(FIRST_LETTER)
    page.click("text=Redrive this letter…")
    fill(page, why="mended")
    page.click("button.go")
    page.wait_for_selector(".state:has-text('done')")
    await_text(page, "1 of 1")
    # by filter
    page.goto(f"{shop.home}/letters?kind=KeyError")
    await_chosen(page, 2)
    page.click("text=Redrive these…")
    fill(page, why="mended", count="5")
    page.click("button.go")
    await_text(page, "type 2 to confirm")
    fill(page, why="mended", count="2")
    page.click("button.go")
    page.wait_for_selector(".state:has-text('done')")
    # all, slowly; it outlives the window, and is stopped from another
    page.goto(f"{shop.home}/letters")
    page.click("text=Redrive all…")
    fill(page, why="mended at last", count="30", rate="0.5")  # a minute
    page.click("button.go")
    page.wait_for_selector(".state:has-text('running')")
    running = page.url
    page.context.close()
    other = visit(running)
    other.wait_for_selector("#live b:not(:text-is('0'))")
    other.click("#stop")
    other.wait_for_selector(".state:has-text('stopped')")
    left = 30 - int(other.inner_text("#live b"))
    assert 0 < left < 30
    other.goto(f"{shop.home}/letters")
    wait_until(lambda: other.inner_text("h1").endswith(f" {left}"), "what is left")


def test_a_list_of_letters_becomes_empty_with_a_keyboard_alone(visit: Visit, shop: Shop) -> None:
    page = visit(f"{shop.home}/letters")
    letters_of(shop, page, 3, error="key")

    def go_to(label: str) -> None:
        def is_there() -> bool:
            page.keyboard.press("Tab")
            return bool(
                page.evaluate("document.activeElement.innerText || document.activeElement.id") == label
            )

        wait_until(is_there, f"the focus on {label!r}")

    go_to("Dismiss all…")
    page.keyboard.press("Enter")
    page.wait_for_url("**/dismiss")
    for count in ("2", "3"):
        go_to("count")
        page.keyboard.type(count)
        go_to("why")
        page.keyboard.type("test data")
        page.keyboard.press("Enter")
        if count == "2":
            await_text(page, "type 3 to confirm")
    page.wait_for_url("**/letters")
    await_text(page, "all were redriven or dismissed")
    page.goto(f"{shop.home}/audit")
    await_text(page, "3 of 3 letters: all")
    assert page.inner_text("nav a:has-text('Dead letters')") == "Dead letters 0"
    page.goto("/")
    row = page.locator(f"tr:has-text('{shop.app}')")
    wait_until(lambda: "reading" in row.inner_text(), "the application is read")


def test_a_reset_is_refused_while_the_consumer_lives_and_then_previewed_and_done(
    visit: Visit, shop: Shop
) -> None:
    page = visit(shop.home)
    assert "Reset: only while no consumer is alive" in text(page)
    shop.close()
    page.click("text=Reset…")
    fill(page, to="trim_horizon")
    page.click("text=Preview")
    page.wait_for_selector("td[data-label='delivered again']")
    told = page.locator("td[data-label='delivered again']")
    wait_until(lambda: sum(int(each.split()[0]) for each in told.all_inner_texts()) == 4, "all four are told")
    fill(page, count="2", why="the bills were wrong")
    page.click("button.go")
    page.wait_for_url(f"**{shop.home}")
    before = len(shop.done)
    shop.open()
    wait_until(lambda: len(shop.done) == before + 4, "what is delivered again")


def test_the_audit_tells_of_every_change_with_who_and_why(visit: Visit, shop: Shop) -> None:
    page = visit(f"{shop.home}/pause")
    fill(page, why="one reason")
    page.click("button.go")
    page.goto(f"{shop.home}/resume")
    fill(page, why="another reason")
    page.click("button.go")
    page.click("nav >> text=Audit")
    page.wait_for_selector("tbody tr >> nth=1")
    rows = page.locator("tbody tr").all_inner_texts()
    assert [re.split(r"\s*\t\s*", row)[2:5] for row in rows] == [
        ["resume", "the whole application", "another reason"],
        ["pause", "the whole application", "one reason"],
    ]


def test_a_consumer_that_goes_is_seen_without_a_reload(visit: Visit, shop: Shop) -> None:
    page = visit(shop.home)
    assert "sharing" in text(page)
    shop.close()
    page.wait_for_selector("text=nobody reads this stream")
    page.wait_for_selector("text=Reset…")


def test_at_night_the_ground_is_dark_and_the_text_is_light(visit: Visit, shop: Shop) -> None:
    def brightness(page: "Page", what: str) -> float:
        color = page.evaluate(f"getComputedStyle(document.body).{what}")
        return sum(map(int, re.findall(r"\d+", color)[:3])) / 3

    night, day = (visit(shop.home, color_scheme=scheme) for scheme in ("dark", "light"))
    assert brightness(night, "backgroundColor") < 60
    assert brightness(night, "color") > 200
    assert brightness(day, "backgroundColor") > 200
    assert brightness(day, "color") < 60


def test_everything_works_without_javascript(visit: Visit, shop: Shop) -> None:
    page = visit(shop.home, java_script_enabled=False)
    page.click("text=Pause all…")
    fill(page, why="no script here")
    page.click("button.go")
    await_text(page, "paused by an operator")
    page.click("text=Resume all…")
    fill(page, why="no script here either")
    page.click("button.go")
    await_text(page, "Pause all…")
    assert "The whole application is paused" not in text(page)
    letters_of(shop, page, 1, error="value")
    shop.close()
    page.click("text=Redrive all…")
    fill(page, why="mended", count="1")
    page.click("button.go")
    page.wait_for_selector(".state:has-text('done')")  # the page reloads itself every three seconds
    page.click("nav >> text=Audit")
    wait_until(lambda: page.locator("tbody tr").count() == 3, "three changes")
