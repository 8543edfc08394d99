"""The alert rules that users begin with: their metrics, their runbooks, when each fires and when it does not."""

import json
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from kinesis_spout.cli.app import app
from kinesis_spout.monitoring import alert_rules
from kinesis_spout.monitoring.metrics import METRICS, PREFIX, Kind
from tests.unit.monitoring.alert_cases import CASES, Case

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
SITE = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Documentation"] + "latest/"
"""The address of the newest pages, as the site's own hook has it."""
RUNBOOKS = "reference/runbooks.md"
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load(alert_rules())["groups"] for rule in group["rules"]
]
NAMES = [rule["alert"] for rule in RULES]

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="no promtool on PATH (Debian: apt-get install prometheus)"
)


def promtool(*arguments: str | Path) -> None:
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def exposed_names() -> set[str]:
    """Every name under which Prometheus has series."""
    found = set()
    for metric in METRICS.values():
        of_histogram = {f"{metric.name}_{part}" for part in ("bucket", "count", "sum")}
        found |= of_histogram if metric.kind is Kind.HISTOGRAM else {metric.exposed_name}
    return found


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_an_alert_names_metrics_of_the_table_and_a_section_of_the_runbooks(rule: dict[str, Any]) -> None:
    named = set(re.findall(rf"{PREFIX}\w+", rule["expr"]))
    assert named
    assert named <= exposed_names()
    assert rule["labels"]["severity"] in {"page", "ticket"}
    page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    assert page == f"{SITE}{RUNBOOKS.removesuffix('.md')}/"
    assert anchor == rule["alert"].lower()
    section = sections()[rule["alert"]]
    for word in ("**Means**", "**Look at**", "**Do**"):
        assert word in section


def sections() -> dict[str, str]:
    """The runbooks by the names of their alerts."""
    text = (DOCS / RUNBOOKS).read_text()
    found = re.findall(r"^## (\w+): [^\n]+ \{ #(\w+) \}\n(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)
    assert all(anchor == name.lower() for name, anchor, _ in found)
    return {name: section for name, _, section in found}


def test_there_is_a_runbook_for_each_alert_and_none_for_another() -> None:
    assert len(NAMES) == len(set(NAMES))
    assert list(sections()) == NAMES
    assert f"{len(NAMES)} rules" in (DOCS / "how-to/monitor.md").read_text()


def test_the_commands_of_the_pages_exist_with_their_options() -> None:
    pages = "".join((DOCS / page).read_text() for page in (RUNBOOKS, "how-to/monitor.md"))
    typed = {line for line in re.findall(r"`kinesis-spout ([^`]+)`", pages) if not line.startswith("metrics")}
    assert len(typed) > 15
    for line in typed:
        words = shlex.split(line)
        command = typer.main.get_command(app)
        while words and hasattr(command, "commands"):
            command = command.commands[words.pop(0)]
        options = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("-")} <= options, line


@pytest.mark.second_environment
@needs_promtool
def test_the_rules_are_valid(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(alert_rules())
    promtool("check", "rules", "--lint-fatal", tmp_path / "rules.yml")


def test_every_alert_has_a_case_that_fires_and_one_that_does_not() -> None:
    assert {case.alert for case in CASES if case.fires} == set(NAMES)
    assert {case.alert for case in CASES if not case.fires} == set(NAMES)


@pytest.mark.second_environment
@needs_promtool
@pytest.mark.parametrize("alert", NAMES)
def test_an_alert_fires_when_it_must_and_only_then(alert: str, tmp_path: Path) -> None:
    write_cases(tmp_path, [case for case in CASES if case.alert == alert])
    promtool("test", "rules", tmp_path / "cases.yml")


@pytest.mark.second_environment
@needs_promtool
def test_a_case_that_is_wrong_is_found(tmp_path: Path) -> None:
    case = next(case for case in CASES if case.fires)
    write_cases(tmp_path, [Case(case.alert, case.series, at=case.at)])
    with pytest.raises(AssertionError, match="FAILED"):
        promtool("test", "rules", tmp_path / "cases.yml")


def write_cases(folder: Path, cases: list[Case]) -> None:
    """As promtool reads them; JSON is YAML."""
    (folder / "rules.yml").write_text(alert_rules())
    tests = [case.document() for case in cases]
    document = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": tests}
    (folder / "cases.yml").write_text(json.dumps(document))
