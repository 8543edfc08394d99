"""What the page changes: as the forms say, only where it may, and never without a reason."""

import re

import pytest
from botocore.exceptions import ClientError

from shard_state import SequenceNumber
from tests.support.asgi_browser import Answer, AsgiBrowser
from tests.support.waiting import wait_until
from tests.unit.web.page_world import FIRST, HOME, SECOND, PageWorld

WHY = {"why": "the shop is closed"}
FORMS = (
    "pause",
    "resume",
    "drain?member=worker",
    "undrain?member=worker",
    "redrive",
    "dismiss",
    "reset",
    "redrives/1/stop",
)


@pytest.mark.parametrize("form", FORMS)
def test_a_server_that_only_shows_has_no_forms_and_takes_none(world: PageWorld, form: str) -> None:
    world.member()
    browser = world.browser()
    assert browser.get(f"{HOME}/{form}").status == 403
    assert browser.post(f"{HOME}/{form}", WHY).status == 403
    for page in ("", "/letters", f"/shards/{FIRST}"):
        text = browser.get(HOME + page).text
        assert 'method="post"' not in text
        assert not re.search("Pause|Drain|(Redrive|Dismiss) [^<]*…|Reset", text)


def test_the_whole_application_is_paused_and_resumed(world: PageWorld) -> None:
    world.member()
    browser = world.steering()
    assert "Pause all" in browser.get(HOME).said
    answer = browser.post(f"{HOME}/pause", WHY)
    assert (answer.status, answer.headers["location"]) == (303, HOME)
    assert world.zookeeper.paused == {None}
    said = browser.get(HOME).said
    assert "The whole application is paused by an operator" in said
    assert "Pause all" not in said
    assert "It is paused already" in browser.get(f"{HOME}/pause").said
    assert browser.post(f"{HOME}/resume", WHY).status == 303
    assert world.zookeeper.paused == set()
    entries = world.json("audit")
    assert [(each["what"], each["of"], each["why"], each["door"]) for each in entries] == [
        ("pause", "the whole application", WHY["why"], "web page"),
        ("resume", "the whole application", WHY["why"], "web page"),
    ]


def test_one_shard_is_paused_and_resumed(world: PageWorld) -> None:
    world.member()
    browser = world.steering()
    answer = browser.post(f"{HOME}/pause?shard={FIRST}", WHY)
    assert answer.headers["location"] == f"{HOME}/shards/{FIRST}"
    assert world.zookeeper.paused == {FIRST}
    assert "Resume this shard" in browser.get(f"{HOME}/shards/{FIRST}").said
    assert "Pause this shard" in browser.get(f"{HOME}/shards/{SECOND}").said
    assert browser.post(f"{HOME}/resume?shard={FIRST}", WHY).status == 303
    assert world.zookeeper.paused == set()
    assert browser.post(f"{HOME}/pause?shard=nonsense", WHY).status == 404


def test_a_shard_of_an_application_that_is_paused_as_a_whole_has_no_button(world: PageWorld) -> None:
    world.member()
    browser = world.steering()
    browser.post(f"{HOME}/pause", WHY)
    said = browser.get(f"{HOME}/shards/{FIRST}").said
    assert "this shard…" not in said.replace("Reset this shard…", "")
    assert "not this shard by itself" in browser.get(f"{HOME}/resume?shard={FIRST}").said


@pytest.mark.parametrize("form", ["pause", "drain?member=worker", "redrive?id=x", "dismiss?id=x"])
def test_without_a_reason_nothing_is_changed(world: PageWorld, form: str) -> None:
    world.member()
    world.bury(1)
    answer = world.steering().post(f"{HOME}/{form}", {"why": "  "})
    assert answer.status == 400
    assert "say why" in answer.said
    assert (world.zookeeper.paused, world.zookeeper.drained) == (set(), set())
    assert world.json("audit") == []


def test_a_member_is_drained_and_has_its_share_again(world: PageWorld) -> None:
    world.member()
    browser = world.steering()
    assert "No other member takes shards now" in browser.get(f"{HOME}/drain?member=worker").said
    assert browser.post(f"{HOME}/drain?member=worker", WHY).status == 303
    assert world.zookeeper.drained == {"worker"}
    world.forget_readings()
    assert "End the drain…" in browser.get(HOME).said
    assert browser.post(f"{HOME}/undrain?member=worker", WHY).status == 303
    assert world.zookeeper.drained == set()
    assert browser.get(f"{HOME}/drain?member=nobody").status == 404


def done(browser: AsgiBrowser, answer: Answer) -> str:
    """Follow a redrive to its end; give what its page says."""
    address = answer.headers["location"]
    wait_until(
        lambda: not re.search("counting|running|stopping", browser.get(address).said), "the redrive ends"
    )
    return browser.get(address).said


def steering_letters_of_two_kinds(world: PageWorld) -> AsgiBrowser:
    world.member()
    world.bury(1, 2, error="ValueError: x")
    world.bury(3, error="KeyError: y")
    return world.steering()


def test_one_letter_is_redriven_without_typing_a_count(world: PageWorld) -> None:
    world.member()
    world.bury(1, 2)
    browser = world.steering()
    answer = browser.post(f"{HOME}/redrive?id={FIRST}:1", WHY)
    assert answer.status == 303
    assert "done 1 of 1" in done(browser, answer)
    assert len(world.puts.put) == 1
    assert [each.sequence_number for each in world.sink.read()] == ["2"]


def test_letters_are_redriven_by_filter_once_their_count_is_typed(world: PageWorld) -> None:
    browser = steering_letters_of_two_kinds(world)
    assert "2 letters (2 exhausted)" in browser.get(f"{HOME}/redrive?kind=ValueError").said
    for wrong in ({}, {"count": "3"}, {"count": "two"}):
        answer = browser.post(f"{HOME}/redrive?kind=ValueError", WHY | wrong)
        assert answer.status == 400
        assert "type 2 to confirm" in answer.said
    assert world.puts.put == []
    answer = browser.post(f"{HOME}/redrive?kind=ValueError", WHY | {"count": "2", "rate": "500"})
    assert "done 2 of 2" in done(browser, answer)
    assert world.json("audit")[0]["of"] == "2 of 2 letters: kind 'ValueError'"
    assert "number 1" in browser.get(f"{HOME}/redrives").said
    assert "1 letter (" in browser.get(f"{HOME}/redrive").said


def test_a_form_that_is_refused_keeps_what_was_typed(world: PageWorld) -> None:
    world.member()
    world.bury(1, 2)
    fields = {"why": 'the "mended" cause', "rate": "500", "count": "3"}
    answer = world.steering().post(f"{HOME}/redrive", fields)
    assert answer.status == 400
    assert 'value="the &#34;mended&#34; cause"' in answer.text
    assert 'value="500"' in answer.text


@pytest.mark.parametrize("rate", ["0", "-1", "nan", "inf", "fast", "1e9"])
def test_a_rate_that_is_none_is_refused(world: PageWorld, rate: str) -> None:
    world.member()
    world.bury(1)
    answer = world.steering().post(f"{HOME}/redrive?id={FIRST}:1", WHY | {"rate": rate})
    assert answer.status == 400
    assert "rate: expected" in answer.said
    assert world.puts.put == []


def test_a_slow_redrive_shows_its_progress_refuses_a_second_one_and_is_stopped(world: PageWorld) -> None:
    world.member()
    world.bury(*range(50))
    browser = world.steering()
    answer = browser.post(f"{HOME}/redrive", WHY | {"count": "50", "rate": "1"})
    address = answer.headers["location"]
    wait_until(
        lambda: re.search("running [1-9][0-9]* of 50", browser.get(address).said), "the first letter is put"
    )
    second = browser.post(f"{HOME}/redrive", WHY | {"count": "49"})
    assert second.status == 400
    assert "which runs" in second.said
    for method in ("HEAD", "GET"):
        browser.raw(method, f"{address}/stop", b"", **{"sec-fetch-site": "cross-site"})
    assert "running" in browser.get(address).said
    assert browser.post(f"{address}/stop").status == 303
    said = done(browser, answer)
    count = 50 - len(list(world.sink.read()))
    assert 1 <= count < 50
    assert f"stopped {count} of 50" in said
    redriven, stopped = world.json("audit")
    assert f"{count} of 50 letters: all" in redriven["of"]
    assert (stopped["what"], stopped["of"]) == ("stop", "the redrive of all")


def test_a_redrive_that_fails_says_why(world: PageWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise ClientError(
            {"Error": {"Code": "AccessDeniedException", "Message": "the stream is <away>"}}, "PutRecords"
        )

    world.member()
    world.bury(1)
    monkeypatch.setattr(world.puts, "put_records", refuse)
    browser = world.steering()
    said = done(browser, browser.post(f"{HOME}/redrive?id={FIRST}:1", WHY))
    assert "failed" in said
    assert "the stream is &lt;away&gt;" in said
    assert len(list(world.sink.read())) == 1


def test_one_letter_is_dismissed_with_a_reason_that_the_audit_keeps(world: PageWorld) -> None:
    world.member()
    world.bury(1, 2)
    browser = world.steering()
    assert "Dismiss this letter…" in browser.get(f"{HOME}/letter?id={FIRST}:1").said
    assert (
        "1 letter (1 exhausted) would be listed no more" in browser.get(f"{HOME}/dismiss?id={FIRST}:1").said
    )
    answer = browser.post(f"{HOME}/dismiss?id={FIRST}:1", WHY)
    assert (answer.status, answer.headers["location"]) == (303, f"{HOME}/letters")
    assert "Dead letters 1" in browser.get(f"{HOME}/letters").said
    assert [each.sequence_number for each in world.sink.read()] == ["2"]
    assert world.puts.put == []
    (entry,) = world.json("audit")
    assert (entry["what"], entry["of"], entry["why"], entry["door"]) == (
        "dismiss", f"1 of 1 letter: {FIRST}:1", WHY["why"], "web page",
    )  # fmt: skip
    assert "No such letter is there" in browser.get(f"{HOME}/dismiss?id={FIRST}:1").said


def test_dismissed_letters_have_a_list_and_can_be_redriven_after_all(world: PageWorld) -> None:
    browser = steering_letters_of_two_kinds(world)
    assert "There are none" in browser.get(f"{HOME}/letters?state=dismissed").said
    browser.post(f"{HOME}/dismiss?kind=ValueError", WHY | {"count": "2"})
    assert f'href="{HOME}/letters?state=dismissed"' in browser.get(f"{HOME}/letters").text
    answer = browser.get(f"{HOME}/letters?state=dismissed")
    assert "Dismissed letters 2" in answer.said
    assert "Dead letters 2" not in answer.said, "the tab counts what is left"
    assert "Redrive all…" in answer.said
    assert "Dismiss all…" not in answer.said
    links = set(re.findall(f'href="{HOME}/(?:letter|redrive)[?]([^"]*)"', answer.text))
    assert links
    assert all("state=dismissed" in link for link in links)
    assert browser.get(f"{HOME}/letter?id={FIRST}:1").status == 404
    said = browser.get(f"{HOME}/letter?id={FIRST}:1&state=dismissed").said
    assert "It was dismissed" in said
    assert "Dismiss this letter…" not in said
    redriven = browser.post(f"{HOME}/redrive?id={FIRST}:1&state=dismissed", WHY)
    assert "done 1 of 1" in done(browser, redriven)
    assert "Dismissed letters 1" in browser.get(f"{HOME}/letters?state=dismissed").said
    assert "Dead letters 1" in browser.get(f"{HOME}/letters").said


def test_a_list_becomes_empty_once_the_count_of_its_letters_is_typed(world: PageWorld) -> None:
    browser = steering_letters_of_two_kinds(world)
    assert "Dismiss these…" in browser.get(f"{HOME}/letters?kind=ValueError").said
    for wrong in ({}, {"count": "3"}):
        answer = browser.post(f"{HOME}/dismiss?kind=ValueError", WHY | wrong)
        assert (answer.status, "type 2 to confirm" in answer.said) == (400, True)
    assert browser.post(f"{HOME}/dismiss?kind=ValueError", WHY | {"count": "2"}).status == 303
    assert "Dead letters 1" in browser.get(f"{HOME}/letters").said
    assert browser.post(f"{HOME}/dismiss", WHY | {"count": "1"}).status == 303
    assert "all were redriven or dismissed" in browser.get(f"{HOME}/letters").said


def test_letters_that_are_being_redriven_are_not_dismissed(world: PageWorld) -> None:
    world.member()
    world.bury(*range(50))
    browser = world.steering()
    running = browser.post(f"{HOME}/redrive", WHY | {"count": "50", "rate": "1"})
    address = running.headers["location"]
    wait_until(lambda: re.search("running [1-9]", browser.get(address).said), "the first letter is put")
    answer = browser.post(f"{HOME}/dismiss?id={FIRST}:49", WHY)
    assert answer.status == 400
    assert "got a redrive by" in answer.said
    browser.post(f"{address}/stop")
    done(browser, running)
    assert browser.post(f"{HOME}/dismiss?id={FIRST}:49", WHY).status == 303


def test_a_reset_while_a_consumer_lives_has_no_button_and_is_refused(world: PageWorld) -> None:
    world.member()
    browser = world.steering()
    said = browser.get(HOME).said
    assert "Reset…" not in said
    assert "Reset: only while no consumer is alive" in said
    assert "Stop this one first: worker" in browser.get(f"{HOME}/reset?to=latest").said
    answer = browser.post(f"{HOME}/reset?to=latest", WHY | {"target": "latest", "count": "2"})
    assert answer.status == 409
    assert world.json("audit") == []


def test_a_reset_is_previewed_shard_by_shard_and_done_once_their_count_is_typed(world: PageWorld) -> None:
    process = world.member()
    world.put(8)
    numbers = [int(each.sequence_number) for each in world.kinesis._logs[FIRST].records]
    world.store(process, FIRST, base=SequenceNumber(numbers[1]))
    process.close()
    world.clock.advance(5.0)
    browser = world.steering()
    assert "Reset…" in browser.get(HOME).said
    said = browser.get(f"{HOME}/reset?to=trim_horizon").said
    assert re.search(rf"{FIRST} after {numbers[1]} TRIM_HORIZON 2 from 5 s ago 0 -", said)
    assert re.search(rf"{SECOND} TRIM_HORIZON TRIM_HORIZON 0 0", said)
    assert re.search(
        rf"{FIRST} after {numbers[1]} \S+Z 0 2 from", browser.get(f"{HOME}/reset?to=latest").said
    )
    wrong = browser.post(f"{HOME}/reset?to=trim_horizon", WHY | {"target": "trim_horizon", "count": "1"})
    assert wrong.status == 400
    assert str(world.stored()[FIRST].base) == str(numbers[1])
    answer = browser.post(f"{HOME}/reset?to=trim_horizon", WHY | {"target": "trim_horizon", "count": "2"})
    assert answer.status == 303
    assert str(world.stored()[FIRST].base) == "SHARD_START"
    assert world.json("audit")[0]["of"] == "2 shards to trim_horizon"


def test_a_place_that_is_none_is_refused_with_what_is_allowed(world: PageWorld) -> None:
    world.member().close()
    answer = world.steering().get(f"{HOME}/reset?to=yesterday")
    assert answer.status == 400
    assert "trim_horizon, latest" in answer.said


def test_a_form_that_is_too_large_or_no_text_is_refused(world: PageWorld) -> None:
    world.member()
    browser = world.steering()
    assert browser.post(f"{HOME}/pause", {"why": "x" * 70_000}).status == 400
    answer = browser.raw("POST", f"{HOME}/pause", b"why=\xff\xfe", **{"sec-fetch-site": "same-origin"})
    assert answer.status == 400
    assert world.zookeeper.paused == set()
    assert browser.raw("DELETE", HOME, b"", **{"sec-fetch-site": "same-origin"}).status == 405
