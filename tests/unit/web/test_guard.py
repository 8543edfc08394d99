"""Who is let in, and whose forms are taken."""

from pathlib import Path

import pytest

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.web.page_settings import PageSettings, parse_address
from tests.support.asgi_browser import AsgiBrowser
from tests.unit.web.page_world import HOME, PageWorld

TOKEN = "0123456789abcdef-token"
WHY = {"why": "a test"}


@pytest.mark.parametrize("site", ["cross-site", "same-site", "none", ""])
def test_a_form_of_another_site_changes_nothing(world: PageWorld, site: str) -> None:
    world.member()
    browser = world.steering()
    headers = {"sec-fetch-site": site} if site else {"sec-fetch-site": ""}
    assert browser.post(f"{HOME}/pause", WHY, **headers).status == 403
    assert world.zookeeper.paused == set()


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://127.0.0.1:8080", 303),
        ("http://127.0.0.1:9090", 403),
        ("http://evil.example", 403),
        ("null", 403),
        ("http://[", 403),
    ],
)
def test_a_browser_without_fetch_metadata_is_known_by_its_origin(
    world: PageWorld, origin: str, status: int
) -> None:
    world.member()
    browser = world.steering()
    headers = {"sec-fetch-site": "", "origin": origin}
    assert browser.post(f"{HOME}/pause", WHY, **headers).status == status


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "", "["])
def test_without_a_token_only_names_of_this_machine_lead_here(world: PageWorld, host: str) -> None:
    world.member()
    browser = world.browser()
    browser.host = host
    assert browser.get(HOME).status == 421


@pytest.mark.parametrize("host", ["localhost:8080", "127.0.0.1", "[::1]:8080"])
def test_this_machine_has_several_names(world: PageWorld, host: str) -> None:
    world.member()
    browser = world.browser()
    browser.host = host
    assert browser.get(HOME).status == 200


def guarded(world: PageWorld, token: str = TOKEN) -> AsgiBrowser:
    world.member()
    browser = world.steering(token=token, host="0.0.0.0")
    browser.host = "spout.example"
    return browser


def test_with_a_token_nothing_is_shown_or_changed_before_it_is_given(world: PageWorld) -> None:
    browser = guarded(world)
    answer = browser.get(f"{HOME}?state=ready")
    assert answer.status == 303
    assert answer.headers["location"] == "/login?next=%2Fa%2Fbilling%2Forders%3Fstate%3Dready"
    assert browser.post(f"{HOME}/pause", WHY).status == 401
    assert browser.get("/static/page.css").status == 200
    assert browser.get("/login").status == 200


def test_who_gives_the_token_is_let_in_and_named_by_the_audit(world: PageWorld) -> None:
    browser = guarded(world)
    assert browser.post("/login", {"name": "ann", "token": "wrong"}).status == 401
    assert browser.post("/login", {"name": "", "token": TOKEN}).status == 401
    assert not browser.cookies
    answer = browser.post("/login?next=/a/billing/orders", {"name": "änn", "token": TOKEN})
    assert (answer.status, answer.headers["location"]) == (303, HOME)
    assert {"HttpOnly", "SameSite=lax"} <= set(answer.headers["set-cookie"].split("; "))
    assert browser.get(HOME).status == 200
    assert browser.post(f"{HOME}/pause", WHY).status == 303
    assert "änn" in browser.get(f"{HOME}/audit").said


def test_a_cookie_of_another_name_or_token_is_none(world: PageWorld) -> None:
    browser = guarded(world)
    browser.post("/login", {"name": "ann", "token": TOKEN})
    good = browser.cookies["kinesis_spout_web"].strip('"')
    name, _, signature = good.partition(".")
    for forged in (f"Ym9i.{signature}", f"{name}.{'0' * 64}", name, ".", "é", "x" * 5000):
        browser.cookies = {"kinesis_spout_web": forged.encode().decode("latin-1")}
        assert browser.get(HOME).status == 303, forged
    browser.cookies = {"kinesis_spout_web": good}
    assert browser.get(HOME).status == 200


def test_a_program_gives_the_token_in_a_header(world: PageWorld) -> None:
    browser = guarded(world)
    assert browser.get(HOME, authorization=f"Bearer {TOKEN}").status == 200
    assert browser.get(HOME, authorization="Bearer nonsense").status == 303


def refusals(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]


def test_a_refused_sign_in_is_logged_with_its_address_and_without_what_was_given(
    world: PageWorld, caplog: pytest.LogCaptureFixture
) -> None:
    browser = guarded(world)
    browser.post("/login", {"name": "ann\n\x1b[2J", "token": "hunter2-hunter2-hunter2"})
    browser.get(HOME, authorization="Bearer hunter2-hunter2-hunter2")
    assert refusals(caplog) == [
        "refused a sign-in from 127.0.0.1 as 'ann\\n\\x1b[2J': wrong token",
        "refused a sign-in from 127.0.0.1: wrong token",
    ]
    assert "hunter2" not in caplog.text


@pytest.mark.parametrize("token", [TOKEN, "0123456789abcdef" * 8])
def test_a_token_that_was_given_as_the_name_is_not_logged(
    world: PageWorld, caplog: pytest.LogCaptureFixture, token: str
) -> None:
    browser = guarded(world, token)
    for name in (token, token[:100], f"{token}."):  # a form cuts a name at 100 characters
        browser.post("/login", {"name": name, "token": "ann"})
    assert refusals(caplog) == ["refused a sign-in from 127.0.0.1: wrong token"] * 3


def test_a_forged_address_of_a_visitor_writes_no_words_into_the_log(
    world: PageWorld, caplog: pytest.LogCaptureFixture
) -> None:
    sign_ins = guarded(world).app.state.sign_ins
    for forged in ("1.2.3.4: wrong token\x1b[2J", "2001:db8::7%\x1b[2J"):  # by X-Forwarded-For
        sign_ins.refuse({"client": (forged, 0)})
    assert refusals(caplog) == [
        "refused a sign-in from '1.2.3.4: wrong token\\x1b[2J': wrong token",
        "refused a sign-in from 2001:db8::7: wrong token",
    ]


def test_of_many_refused_sign_ins_the_log_has_some_and_counts_the_others(
    world: PageWorld, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_000.0
    monkeypatch.setattr("kinesis_spout.web.guard.time.monotonic", lambda: now)
    browser = guarded(world)
    for _ in range(25):
        browser.get(HOME, authorization="Bearer wrong")
    assert len(refusals(caplog)) == 10
    now += 61.0
    browser.get(HOME, authorization="Bearer wrong")
    assert refusals(caplog)[-1] == (
        "refused a sign-in from 127.0.0.1: wrong token; 15 more were refused before it"
    )


def test_a_visit_without_a_token_and_a_good_sign_in_log_nothing(
    world: PageWorld, caplog: pytest.LogCaptureFixture
) -> None:
    browser = guarded(world)
    browser.get(HOME)
    browser.post("/login", {"name": "ann", "token": TOKEN})
    browser.get(HOME, authorization=f"Bearer {TOKEN}")
    assert refusals(caplog) == []


@pytest.mark.parametrize("following", ["//evil.example", "https://evil.example", "/\\evil.example", "evil"])
def test_after_the_token_one_stays_on_this_server(world: PageWorld, following: str) -> None:
    browser = guarded(world)
    answer = browser.post(f"/login?next={following}", {"name": "ann", "token": TOKEN})
    assert answer.headers["location"] == "/"


def test_behind_a_proxy_its_header_names_the_visitor(world: PageWorld) -> None:
    world.member()
    browser = world.steering(behind_proxy=True, host="0.0.0.0")
    browser.host = "spout.example"
    assert browser.post(f"{HOME}/pause", WHY, **{"x-forwarded-user": "ann@example"}).status == 303
    browser.post(f"{HOME}/resume", WHY)
    said = browser.get(f"{HOME}/audit").said
    assert "ann@example pause" in said
    assert "somebody behind the proxy resume" in said


def test_a_header_of_a_proxy_means_nothing_where_there_is_none(world: PageWorld) -> None:
    world.member()
    browser = world.steering()
    browser.post(f"{HOME}/pause", WHY, **{"x-forwarded-user": "ann@example"})
    assert "ann@example" not in browser.get(f"{HOME}/audit").text


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.7", "::", "spout.example"])
def test_beyond_this_machine_it_is_not_served_without_asking_who_looks(host: str) -> None:
    with pytest.raises(InvalidConfig, match="--token-file FILE, or --behind-proxy"):
        PageSettings(host=host)
    assert PageSettings(host=host, token=TOKEN).host == host
    assert PageSettings(host=host, behind_proxy=True).host == host


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8080", ("127.0.0.1", 8080)),
        (":9000", ("127.0.0.1", 9000)),
        ("9000", ("127.0.0.1", 9000)),
        ("[::1]:0", ("::1", 0)),
        ("localhost:1", ("localhost", 1)),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", "host", "host:", "host:x", "host:70000", "host:²"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match="expected HOST:PORT"):
        parse_address(text)


def test_the_token_is_what_its_file_holds(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    settings = PageSettings.of("0.0.0.0:80", token_file=file)
    assert settings.is_token(TOKEN)
    assert TOKEN not in repr(settings)
    file.write_text("short\n")
    with pytest.raises(InvalidConfig, match="16 characters or more"):
        PageSettings.of("0.0.0.0:80", token_file=file)
    with pytest.raises(InvalidConfig, match="expected a file with a token"):
        PageSettings.of("0.0.0.0:80", token_file=tmp_path / "none")
