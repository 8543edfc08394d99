"""The command ``web``: what it refuses before it serves anything, and what it serves."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from kinesis_spout.operations.world import UNNAMED
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.web import app
from kinesis_spout.web.page_settings import PageSettings
from tests.unit.cli.fake_world import SETTINGS, FakeWorld


class Served:
    """Notes what would be served."""

    def __init__(self) -> None:
        self.config: SpoutConfig | None = None
        self.settings: PageSettings | None = None

    def __call__(self, _world: Any, config: SpoutConfig, settings: PageSettings, ready: Any) -> None:
        self.config, self.settings = config, settings
        ready("http://127.0.0.1:8080/")


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Served:
    served = Served()
    monkeypatch.setattr(app, "serve", served)
    return served


def test_it_shows_one_application_and_changes_nothing_unless_told(served: Served) -> None:
    _, said = FakeWorld().call("web", *SETTINGS)
    assert said == "the page is at http://127.0.0.1:8080/\n"
    assert served.config is not None
    assert (served.config.app, served.config.stream) == ("billing", "orders")
    assert served.settings == PageSettings(allow_changes=False, show_data=False)


def test_without_names_it_shows_all_applications(served: Served) -> None:
    FakeWorld().call("web", "--http", "127.0.0.1:0", "--allow-changes", "--show-data", "--mask", "card")
    assert served.config is not None
    assert (served.config.app, served.config.stream) == (UNNAMED, UNNAMED)
    assert served.settings == PageSettings(
        port=0, allow_changes=True, show_data=True, masks=frozenset({"card"})
    )


def test_it_opens_a_browser_where_that_is_asked_for(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    FakeWorld().call("web", "--open", *SETTINGS)
    assert served.settings is not None
    assert opened == ["http://127.0.0.1:8080/"]


def test_beyond_this_machine_it_asks_for_a_token_or_a_proxy(served: Served, tmp_path: Path) -> None:
    _, error = FakeWorld().call("web", "--http", "0.0.0.0:80", *SETTINGS, exit_code=2)
    assert "give --token-file FILE, or --behind-proxy" in error
    assert served.settings is None
    file = tmp_path / "token"
    file.write_text("0123456789abcdef")
    FakeWorld().call("web", "--http", "0.0.0.0:80", "--token-file", str(file), *SETTINGS)
    FakeWorld().call("web", "--http", "0.0.0.0:80", "--behind-proxy", *SETTINGS)


def test_without_its_extra_one_line_says_what_to_install(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "uvicorn" else find(name))
    _, error = FakeWorld().call("web", *SETTINGS, exit_code=2)
    assert error.splitlines()[0] == (
        'error: web: expected uvicorn, found none: pip install "kinesis-spout[web]"'
    )
    assert served.settings is None


def test_an_address_that_is_taken_is_refused() -> None:
    with app._listening(PageSettings(port=0)) as other:
        port = other.getsockname()[1]
        _, error = FakeWorld().call("web", "--http", f"127.0.0.1:{port}", *SETTINGS, exit_code=2)
    assert "another program may listen there" in error
