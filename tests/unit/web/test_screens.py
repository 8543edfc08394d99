"""What each screen shows, and what none of them shows."""

import gzip
import re
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kinesis_spout.operations.group import GroupView
from kinesis_spout.operations.shards import ShardState, ShardView
from kinesis_spout.operations.watch import observation
from kinesis_spout.operations.watch.live_status import LiveComponent, LiveRetry, LiveShard, LiveStatus
from kinesis_spout.operations.watch.sight import ShardSight, Sight
from kinesis_spout.operations.world import UNNAMED
from kinesis_spout.testing import InMemoryZooKeeper
from kinesis_spout.web import drawing
from kinesis_spout.web.watched import ApplicationView
from shard_state import Assignment, OperatorPause, SequenceNumber
from tests.support.asgi_browser import Answer
from tests.support.waiting import wait_until
from tests.unit.web.page_world import FIRST, HOME, SECOND, PageWorld

NOBODY = GroupView(members=(), candidate=None, assignment=Assignment(), owners=Counter())
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"


def test_the_applications_of_a_zookeeper_are_listed_with_how_they_are(world: PageWorld) -> None:
    world.member()
    browser = world.browser(UNNAMED, UNNAMED)
    world.put(4)
    world.bury(1, 2)
    wait_until(lambda: re.search("shards [-0-9]+ [a-z0-9 ]*2 1 0 of 2", browser.get("/").said), "its figures")
    answer = browser.get("/")
    assert answer.status == 200
    assert "billing orders ready 2 of 2 shards" in answer.said
    assert f'href="{HOME}"' in answer.text
    assert f'href="{HOME}/letters">2</a>' in answer.text
    assert browser.get(HOME).status == 200


def test_the_worst_applications_are_listed_first() -> None:
    def view(app: str, *states: ShardState, lag: int | None = None, problem: str | None = None) -> Any:
        if problem is not None or not states:
            return ApplicationView(app=app, stream="orders", problem=problem)
        shards = [
            ShardSight(view=ShardView(shard_id=f"shard-{number}", state=state, lag_millis=lag))
            for number, state in enumerate(states)
        ]
        sight = Sight(at=0.0, group=NOBODY, paused=OperatorPause(), shards=shards)
        return ApplicationView(app=app, stream="orders", sight=sight)

    views = [
        view("unseen"),
        view("over", ShardState.OVER),
        view("quick", ShardState.READING, lag=10),
        view("slow", ShardState.READING, lag=9_000),
        view("half paused", ShardState.READING, ShardState.PAUSED, ShardState.PAUSED),
        view("lost", problem="ZooKeeper is away"),
    ]
    views.sort(key=lambda each: each.urgency)
    assert [each.app for each in views] == ["lost", "half paused", "slow", "quick", "over", "unseen"]
    assert views[1].worst == (ShardState.PAUSED, 2)


def test_the_tabs_carry_the_lengths_of_their_lists(world: PageWorld) -> None:
    world.member()
    world.bury(1, 2, 3)
    browser = world.browser()
    browser.get(HOME)
    wait_until(lambda: "Shards 2 Dead letters 3 Redrives Topology" in browser.get(HOME).said, "the counts")
    assert "Shards 2 Dead letters 3 Redrives Topology" in browser.get(f"{HOME}/letters").said
    world.bury(4)
    world.forget_readings()
    assert "Dead letters 4 Redrives" in browser.get(f"{HOME}/letters").said, "what the page has just read"


@pytest.mark.parametrize("app", ["redriver", "shards", "billing"])
def test_one_tab_is_current_whatever_the_application_is_called(world: PageWorld, app: str) -> None:
    world.others = [(app, "orders")]
    world.member()
    browser = world.browser(app)
    for page, tab in (("", "Shards"), (f"/shards/{FIRST}", "Shards"), ("/audit", "Audit")):
        text = browser.get(f"/a/{app}/orders{page}").text
        assert re.findall('aria-current="page">([A-Za-z]+)', text) == [tab]


def test_and_more_is_a_link_that_leads_to_all(world: PageWorld) -> None:
    world.member()
    for number in range(35):
        world.bury(number, error=f"Error{number:02d}: x")
    browser = world.browser()
    page = browser.get(f"{HOME}/letters?reason=exhausted")
    assert "and 5 more" in page.said
    assert page.text.count("kind=Error") == 30
    assert 'href="?reason=exhausted&amp;all=kinds#kinds"' in page.text
    every = browser.get(f"{HOME}/letters?reason=exhausted&all=kinds")
    assert "more" not in every.said
    assert every.text.count("kind=Error") == 35


def test_an_application_that_has_not_begun_is_not_found(world: PageWorld) -> None:
    world.member()
    answer = world.browser(UNNAMED, UNNAMED).get("/a/other/orders")
    assert answer.status == 404
    assert "expected an application that has begun, got 'other' on 'orders'" in answer.text.replace(
        "&#39;", "'"
    )


def test_the_only_application_is_shown_at_once(world: PageWorld) -> None:
    world.member()
    answer = world.browser().get("/")
    assert (answer.status, answer.headers["location"]) == (303, HOME)


def test_an_application_shows_its_shards_members_and_retries(world: PageWorld) -> None:
    process = world.member()
    world.zookeeper.assignment = Assignment(epoch=1, members=frozenset({"worker"})).encode()
    start = world.kinesis.put(b"first")
    world.store(
        process,
        FIRST,
        base=SequenceNumber(int(start.sequence_number)),
        attempts=((SequenceNumber(int(start.sequence_number) + 5), 3),),
    )
    answer = world.browser().get(HOME)
    assert re.search(rf"{FIRST} reading cannot read .* worker", answer.said)
    assert f"{SECOND} ready it has a backlog, and no member owns it -" in answer.said
    assert "worker leads sharing 1" in answer.said
    assert answer.text.count("<rect") >= 2
    assert re.search(rf"Being retried .* {FIRST} \d+ 3", answer.said)


def test_a_shard_without_an_owner_that_has_a_backlog_is_told_of(world: PageWorld) -> None:
    world.member()
    world.put(4)
    assert "it has a backlog, and no member owns it" in world.browser().get(HOME).said


def test_the_address_chooses_and_sorts_shards(world: PageWorld) -> None:
    world.store(world.member(), FIRST)
    browser = world.browser()
    table = browser.get(f"{HOME}?state=ready").text.partition("<tbody>")[2]
    assert SECOND in table
    assert FIRST not in table.partition("</tbody>")[0]
    table = browser.get(f"{HOME}?sort=-shard").text.partition("<tbody>")[2]
    assert table.index(SECOND) < table.index(FIRST)
    assert browser.get(f"{HOME}?sort=nonsense&page=99").status == 200
    assert "no shard fits" in browser.get(f"{HOME}?find=nothing").said


def test_everything_is_shown_while_no_consumer_lives(world: PageWorld) -> None:
    world.member().close()
    answer = world.browser().get(HOME)
    assert "nobody reads this stream for billing now" in answer.said
    assert answer.said.count(" ready ") >= 2


def test_a_shard_shows_its_checkpoint_holes_and_relatives(world: PageWorld) -> None:
    process = world.member()
    holes = ((SequenceNumber(20), SequenceNumber(30)),)
    world.store(process, FIRST, base=SequenceNumber(10), holes=holes, attempts=((SequenceNumber(12), 2),))
    children = world.kinesis.split(FIRST)
    answer = world.browser().get(f"{HOME}/shards/{FIRST}")
    assert 'class="hole"' in answer.text
    assert 'class="failed"' in answer.text
    assert "checkpoint 10" in answer.said
    assert all(f"/shards/{child.shard_id}" in answer.text for child in children)
    assert world.browser().get(f"{HOME}/shards/nonsense").status == 404


def test_records_are_hidden_until_data_may_be_shown_and_they_are_asked_for(world: PageWorld) -> None:
    world.member()
    world.put(6)
    hidden = world.browser().get(f"{HOME}/shards/{FIRST}?records=10")
    assert "secret-" not in hidden.text
    assert "started without --show-data" in hidden.said
    browser = world.browser(show_data=True)
    assert "secret-" not in browser.get(f"{HOME}/shards/{FIRST}").text
    shown = [browser.get(f"{HOME}/shards/{each}?records=10").text for each in (FIRST, SECOND)]
    assert "secret-" in "".join(shown)


def test_letters_are_counted_by_kind_and_filtered_sorted_and_paged_by_the_address(world: PageWorld) -> None:
    world.member()
    world.bury(*range(60), error="ValueError: negative", died_at=1_000.0)
    world.bury(*range(100, 103), error="KeyError: 'x'", died_at=2_000.0, reason="rejected")
    browser = world.browser()
    said = browser.get(f"{HOME}/letters").said
    assert "Dead letters 63" in said
    assert "ValueError 60" in said
    assert "KeyError 3" in said
    assert "1 of 2 Next" in said
    assert "2 of 2" in browser.get(f"{HOME}/letters?page=2").said
    assert "Chosen 3" in browser.get(f"{HOME}/letters?kind=KeyError").said
    assert "Chosen 3" in browser.get(f"{HOME}/letters?reason=rejected").said
    assert "Chosen 60" in browser.get(f"{HOME}/letters?error=negative").said
    newest = browser.get(f"{HOME}/letters?sort=-died").text
    assert newest.index("KeyError: ") < newest.index("ValueError: ")


def test_without_dead_letters_their_screen_says_so(world: PageWorld) -> None:
    world.member()
    said = world.browser().get(f"{HOME}/letters").said
    assert f"There are none in {Path.cwd()}/.kinesis-spout/billing/orders/dead-letters:" in said


def test_a_letter_is_shown_with_its_error_and_its_data_only_where_that_may_be_shown(world: PageWorld) -> None:
    world.member()
    world.bury(1, error="ValueError: no", traceback="  File orders.py", data=b'{"card": "4242", "n": 1}')
    address = f"{HOME}/letter?id={FIRST}:1"
    hidden = world.browser().get(address)
    assert "ValueError: no" in hidden.said
    assert "File orders.py" in hidden.said
    assert "4242" not in hidden.text
    assert "partition key" not in hidden.said
    shown = world.browser(show_data=True)
    assert "4242" in shown.get(address).text
    assert "7b 22 63 61 72 64" in shown.get(f"{address}&as=hex").text
    assert shown.get(f"{address}&as=nonsense").status == 200
    masked = world.browser(show_data=True, masks=frozenset({"card"}))
    for form in ("json", "text", "hex"):
        answer = masked.get(f"{address}&as={form}")
        assert "4242" not in answer.text
        assert "34 32 34 32" not in answer.text


def test_masked_data_that_has_no_fields_is_not_shown(world: PageWorld) -> None:
    world.member()
    world.bury(1, data=b"card=4242")
    answer = world.browser(show_data=True, masks=frozenset({"card"})).get(
        f"{HOME}/letter?id={FIRST}:1&as=hex"
    )
    assert "4242" not in answer.text
    assert "no JSON object or array" in answer.said


def test_a_letter_that_is_not_there_is_not_found(world: PageWorld) -> None:
    world.member()
    assert world.browser().get(f"{HOME}/letter?id=nonsense").status == 404


def test_text_of_others_is_escaped_everywhere(world: PageWorld) -> None:
    process = world.member(HOSTILE.replace("/", "_"))
    process.coordinator.show_pause(HOSTILE)
    world.bury(1, error=f"{HOSTILE}: x", traceback=HOSTILE, data=HOSTILE.encode(), partition_key=HOSTILE)
    world.bury(2, error=f"ValueError: {HOSTILE}")
    browser = world.steering(show_data=True)
    browser.post(f"{HOME}/pause", {"why": HOSTILE})
    pages = ("", "/letters", f"/letter?id={FIRST}:1", "/audit", f"/shards/{FIRST}?records=5", "/resume")
    for page in pages:
        answer = browser.get(HOME + page)
        assert answer.status == 200, page
        assert "<script>alert" not in answer.text, page
        assert "<img src=x" not in answer.text, page
    assert "&lt;script&gt;" in browser.get(f"{HOME}/audit").text
    assert HOSTILE not in browser.get(f"/{HOSTILE}").text


@pytest.mark.parametrize("page", ["", "/letters", "/redrives", "/topology", "/audit", f"/shards/{FIRST}"])
def test_every_page_forbids_scripts_and_styles_that_are_not_files_of_this_server(
    world: PageWorld, page: str
) -> None:
    world.member()
    answer = world.browser().get(HOME + page)
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert "unsafe" not in policy
    assert not re.search(r"<script(?! src=\"/static/)|<style| style=| on[a-z]+=", answer.text)
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_an_outage_of_zookeeper_is_a_page_that_says_so(world: PageWorld) -> None:
    world.member()
    world.zookeeper.set_available(False)
    answer = world.browser().get(HOME)
    assert answer.status == 503
    assert "unavailable" in answer.said


def test_a_page_that_cannot_be_read_yet_says_so(world: PageWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observation, "_STORE_PATIENCE_SECONDS", 0.0)
    world.member()
    with world.zookeeper.lock:  # the reading goes on when the page was shown
        answer = world.browser().get(HOME)
    assert answer.status == 503
    assert "look again in a moment" in answer.said


def test_what_is_stored_is_shown_while_the_stream_does_not_answer(world: PageWorld) -> None:
    world.store(world.member(), FIRST, base=SequenceNumber(10))
    world.kinesis.delete()
    answer = world.browser().get(HOME)
    assert answer.status == 200
    assert FIRST in answer.said
    assert "notice bad" in answer.text


def test_a_stream_of_many_shards_is_shown_page_by_page_and_drawn_whole() -> None:
    world = PageWorld(shards=450)
    world.member()
    answer = world.browser().get(HOME)
    assert "1 of 3" in answer.said
    assert answer.text.count("<rect") == 450
    world.page.state.pages.watched.close(5.0)


def test_names_with_odd_characters_have_an_address(world: PageWorld) -> None:
    world.member()
    world.others.append(("über app?#&", "orders"))
    world.zookeeper = world.zookeeper or InMemoryZooKeeper()
    browser = world.browser(UNNAMED, UNNAMED)
    address = re.search(r'href="(/a/%C3%BC[^"]*)"', browser.get("/").text)
    assert address is not None
    answer = browser.get(address[1])
    assert answer.status == 200
    assert 'aria-current="page">Shards' in answer.text


def test_static_files_are_served(world: PageWorld) -> None:
    browser = world.browser()
    for name in ("page.js", "page.css", "icon.svg"):
        assert browser.get(f"/static/{name}").status == 200
    assert browser.get("/static/../app.py").status == 404


def test_no_link_of_a_page_that_is_not_there_leads_to_another_server(world: PageWorld) -> None:
    answer = world.browser().get("http://here//evil.example/x")
    assert answer.status == 404
    assert '"/evil.example/x"' in answer.text
    assert '"//' not in answer.text


def test_a_page_that_is_not_there_is_a_page_too(world: PageWorld) -> None:
    answer = world.browser().get("/nonsense")
    assert answer.status == 404
    assert "there is no such page" in answer.said


def test_what_members_say_is_shown_and_a_member_that_does_not_answer_is_named(
    world: PageWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.store(
        world.member("loud"),
        FIRST,
        base=SequenceNumber(10),
        attempts=((SequenceNumber(12), 2),),
        since=world.clock.time(),
    )
    world.member("broken")
    status = LiveStatus(
        records_per_second=1234.5,
        in_flight=7,
        last_error=f"ValueError: {HOSTILE}",
        shards=(LiveShard(shard_id=FIRST, lag_millis=90_000, stalled=True),),
        retrying=(LiveRetry(shard_id=FIRST, sequence_number="12", attempts=3, kind="KeyError"),),
        components={HOSTILE: LiveComponent(executed=5, execute_latency=0.5)},
    )
    answers = {"loud": status, "broken": LiveStatus(problem="it does not answer")}
    monkeypatch.setattr(observation, "ask_members", lambda _members, _config: answers)
    browser = world.browser()
    answer = browser.get(HOME)
    assert "records/s 1,234" in answer.said
    assert "broken: it does not answer" in answer.said
    assert "it has records to deliver, and has not moved, its owner says lag 90 s" in answer.said
    assert f"{FIRST} 12 3 KeyError" in answer.said
    topology = browser.get(f"{HOME}/topology")
    assert "<script>alert" not in answer.text + topology.text


def test_a_shard_that_stands_still_comes_first_in_a_state_of_its_own_with_its_reason(
    world: PageWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = world.member()
    for shard_id in (FIRST, SECOND):
        world.store(process, shard_id)
    why = "has not moved for 9 s: 1 in flight"
    says = LiveStatus(shards=(LiveShard(shard_id=SECOND, stalled=True, reason=why),))
    monkeypatch.setattr(observation, "ask_members", lambda _members, _config: {"worker": says})
    answer = world.browser().get(HOME)
    assert f"To look at stalled {SECOND} {why}" in answer.said
    assert "stalled 1 reading 1" in answer.said  # the legend
    assert f"{SECOND} stalled {why} worker 0 - - - {FIRST} reading worker" in answer.said
    strip = answer.text.partition("</svg>")[0]
    assert f"{SECOND}: stalled, {why}" in strip
    heights = {css: float(h) for css, h in re.findall(r'class="s-(\w+)"[^>]* height="([\d.]+)"', strip)}
    assert heights["stalled"] > heights["reading"]
    assert f"{SECOND} stalled {why}" in world.browser().get(f"{HOME}/shards/{SECOND}").said


@pytest.mark.parametrize(("stalled", "least", "most"), [(1, 4.0, 4.0), (300, 300.0, 310.0)])
def test_a_picture_of_shards_shows_one_that_stands_still_and_no_more_of_them_than_there_are(
    stalled: int, least: float, most: float
) -> None:
    count = 1_000
    bounds = [2**128 * number // count for number in range(count + 1)]
    sights = [
        ShardSight(
            view=ShardView(
                shard_id=f"shard-{number}",
                state=ShardState.READING,
                hash_range=(bounds[number], bounds[number + 1] - 1),
            ),
            live=LiveShard(shard_id=f"shard-{number}", stalled=number % 3 == 0 and number < 3 * stalled),
        )
        for number in range(count)
    ]
    red = re.findall(r'class="s-stalled" x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', drawing.strip(sights, ""))
    assert len(red) == stalled
    tenths = {
        tenth
        for x, width in red
        for tenth in range(round(float(x) * 10), round((float(x) + float(width)) * 10))
    }
    assert least <= len(tenths) / 10 <= most


def test_a_browser_that_has_the_page_already_is_told_so_and_how_old_it_is(world: PageWorld) -> None:
    world.store(world.member(), FIRST)
    browser = world.browser()

    def again() -> Answer:
        return browser.get(HOME, **{"if-none-match": browser.get(HOME).headers["etag"]})

    wait_until(lambda: again().status == 304, "all of it is read")
    answer = again()
    assert (answer.status, answer.body) == (304, b"")
    assert float(answer.headers["x-read-seconds"]) >= 0
    world.zookeeper.paused.add(None)
    world.forget_readings()
    assert browser.get(HOME, **{"if-none-match": answer.headers["etag"]}).status == 200
    assert "etag" not in browser.get("/nonsense").headers


@pytest.mark.parametrize("stalled", [10, 1_000])
def test_a_page_of_a_thousand_shards_is_sent_in_30_kilobytes(
    monkeypatch: pytest.MonkeyPatch, stalled: int
) -> None:
    world = PageWorld(shards=1_000)
    members, random = [world.member(f"worker-{number}") for number in range(10)], Random(7)
    says = []
    for number, shard_id in enumerate(world.shard_ids):
        world.store(members[number % 10], shard_id)
        lag, still = random.randrange(100_000), random.randrange(10, 99)
        why = f"has not moved for {still} s: {still} in flight, {lag / 1000} s behind the tip"
        says.append(LiveShard(shard_id=shard_id, lag_millis=lag, stalled=number < stalled, reason=why))
    told = {"worker-0": LiveStatus(shards=tuple(says))}
    monkeypatch.setattr(observation, "ask_members", lambda _members, _config: told)
    browser = world.browser()
    answer = browser.get(HOME, **{"accept-encoding": "gzip"})
    assert answer.headers["content-encoding"] == "gzip"
    assert len(answer.body) <= 30_000
    assert gzip.decompress(answer.body).count(b"<title>shardId-") == 1_000
    world.page.state.pages.watched.close(5.0)
