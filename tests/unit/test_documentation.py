"""The examples of the documentation that need neither Spark nor a server. The others are run from the wheel."""

import ast
import gzip
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from configparser import ConfigParser
from decimal import Decimal
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest

import kinesis_spout.storm
from examples.topologies import word_count as sample_topology
from kinesis_spout import KinesisProducer
from kinesis_spout.cli.runs.snapshot import Snapshot
from kinesis_spout.consumer.counters import Counters
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.spark.driver.batch_progress import batch_progress
from kinesis_spout.storm import Topology, builder, topology_conf
from kinesis_spout.storm.running.counts import ComponentCounts
from kinesis_spout.storm.spark import topology_query
from kinesis_spout.structured.stream.source_progress import SourceProgress
from kinesis_spout.testing import run
from tests.support.kinesis.writable import WritableKinesis

if TYPE_CHECKING:
    from kinesis_spout.spark.driver.driver_shards import DriverShards

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


EXAMPLES_TO_COPY = (
    "billing_collector",
    "cache_updater",
    "effectively_once",
    "handlers",
    "migrations",
    "topologies",
    "work_orders",
)


def example(page: str, begins_with: str = "") -> str:
    """Give the first Python example of a page that begins so."""
    found = re.findall(rf"```python\n({re.escape(begins_with)}.*?)```", (DOCS / page).read_text(), re.DOTALL)
    return str(found[0])


PUBLIC_PACKAGES = {
    "kinesis_spout", "kinesis_spout.monitoring", "kinesis_spout.recipes", "kinesis_spout.storm",
    "kinesis_spout.testing",
}  # fmt: skip
COMPONENTS = "kinesis_spout.storm.multilang"
"""What a program that is a component imports: it needs little else."""


def test_no_page_imports_from_inside_the_package() -> None:
    pages = [ROOT / "README.md", *DOCS.rglob("*.md")]
    imports = {
        (page.name, found)
        for page in pages
        for found in re.findall(r"^\s*(?:from|import) (kinesis_spout[\w.]*)", page.read_text(), re.MULTILINE)
    }
    assert len(imports) > 10, "hardly any import was found"
    deep = {each for each in imports if each[1] not in PUBLIC_PACKAGES and not each[1].startswith(COMPONENTS)}
    assert deep == set()


@pytest.mark.parametrize("page", sorted((DOCS / "how-to").glob("*.md")), ids=lambda page: page.stem)
def test_a_how_to_has_at_most_900_words_besides_its_programs(page: Path) -> None:
    assert len(re.sub(r"(?ms)^ *```.*?^ *```", "", page.read_text()).split()) <= 900


def test_the_figures_of_the_home_page_are_those_of_the_pages_that_they_come_from() -> None:
    found = re.findall(r"^\* (.+\n  .+)$", (DOCS / "index.md").read_text(), re.MULTILINE)
    assert len(found) == 3
    for text in found:
        said, page = re.fullmatch(r"(?s)(.+)\[.+?\]\((.+\.md)#.+\)", text).groups()  # type: ignore[union-attr]
        figures = re.findall(r"\d[\d,.]*\b", said)
        source = (DOCS / page).read_text()
        assert [each for each in figures if not re.search(rf"(?<![\d.,]){each}(?![\d.,]*\d)", source)] == []


def test_the_test_of_a_handler_passes_as_it_stands() -> None:
    names: dict[str, Any] = {}
    exec(example("how-to/test-a-handler.md"), names)
    tests = [value for name, value in names.items() if name.startswith("test_")]
    assert tests, "the example has no test"
    for test in tests:
        test()


def test_the_schemes_for_what_aws_puts_read_its_documented_records() -> None:
    names: dict[str, Any] = {}
    exec(example("how-to/cloudwatch-and-dynamodb.md", "import gzip"), names)

    def logged(kind: str, *messages: str) -> bytes:
        events = [
            {
                "id": f"3195310660696698337880902507980421114328961542429822156{at}",
                "timestamp": at,
                "message": text,
            }
            for at, text in enumerate(messages)
        ]
        batch = {
            "messageType": kind,
            "owner": "123456789012",
            "logGroup": "web",
            "logStream": "1",
            "subscriptionFilters": ["all"],
            "logEvents": events,
        }
        return gzip.compress(json.dumps(batch).encode())

    def of_table(event: str, **images: object) -> bytes:
        keys = {"Keys": {"id": {"S": "7"}}, "ApproximateCreationDateTime": 1700000000000, "SizeBytes": 9}
        put = {
            "awsRegion": "eu-west-1",
            "eventID": "5b",
            "eventName": event,
            "userIdentity": None,
            "recordFormat": "application/json",
            "tableName": "orders",
            "dynamodb": {**keys, **images},
            "eventSource": "aws:dynamodb",
        }
        return json.dumps(put).encode()

    handled: list[object] = []
    logs = run(
        lambda events: handled.append([event["message"] for event in events]),
        [
            logged("DATA_MESSAGE", "GET /", "GET /a"),
            logged("CONTROL_MESSAGE", "CWL CONTROL MESSAGE: Checking"),
        ],
        scheme=names["log_events"],
    )
    image = {"id": {"S": "7"}, "amount": {"N": "5"}, "tags": {"L": [{"BOOL": True}, {"NULL": True}]}}
    changes = run(
        handled.append,
        [of_table("INSERT", NewImage=image), of_table("REMOVE")],
        scheme=names["change"],
    )

    assert all(each.acked for each in (*logs, *changes))
    plain = {"id": "7", "amount": Decimal(5), "tags": [True, None]}
    assert handled == [
        ["GET /", "GET /a"],
        [],
        ("INSERT", "orders", {"Keys": {"id": "7"}, "NewImage": plain}),
        ("REMOVE", "orders", {"Keys": {"id": "7"}}),
    ]


def test_the_example_of_records_put_together_prints_what_its_page_says(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = partial(KinesisProducer, client=WritableKinesis(payments=2).client)
    monkeypatch.setattr(kinesis_spout, "KinesisProducer", producer)
    page = "how-to/produce.md"
    exec(example(page, "from kinesis_spout import KinesisProducer\n\n\ndef lost"), {})
    printed = capsys.readouterr().out.splitlines()
    assert printed == ["0 of 1000 failed", "1001 sent"]
    assert "It prints " + " and ".join(f"`{line}`" for line in printed) in (DOCS / page).read_text()


def test_the_handler_of_the_tutorial_fails_the_one_record_that_is_bad(
    capsys: pytest.CaptureFixture[str],
) -> None:
    names: dict[str, Any] = {}
    exec(example("tutorial.md"), names)
    orders = [
        f'{{"id": {number}, "amount": {-1 if number == 13 else number}}}'.encode() for number in range(1, 21)
    ]
    outcomes = list(run(names["bill"], orders, retry_limit=1))
    (bad,) = (outcome for outcome in outcomes if not outcome.acked)
    assert (bad.dead_lettered, bad.attempts) == (True, 2)
    assert bad.error == "ValueError: order 13: negative amount"
    assert capsys.readouterr().out.count("charging") == 19


def test_the_example_of_logging_shows_what_info_says() -> None:
    speak = "logging.getLogger('kinesis_spout.consumer.consumer_log').info('started: ...')"
    script = example("how-to/operate.md", "import logging") + speak
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    time = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}"
    assert re.fullmatch(rf"{time} INFO kinesis_spout\.consumer\.consumer_log: started: \.\.\.\n", done.stderr)


SETTINGS = {"KINESIS_SPOUT_STREAM": "sentences", "KINESIS_SPOUT_APP": "word-count"}


@pytest.fixture
def word_count(monkeypatch: pytest.MonkeyPatch) -> Topology:
    """The sample topology, with the settings that its page shows."""
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)
    return sample_topology.word_count().build("word_count")


def test_the_test_of_a_topology_passes_with_the_topology_above_it(
    monkeypatch: pytest.MonkeyPatch, word_count: Topology
) -> None:
    del word_count  # its settings are wanted
    shown = ModuleType("word_count")
    exec(example("how-to/topologies.md"), shown.__dict__)
    monkeypatch.setitem(sys.modules, "word_count", shown)
    names: dict[str, Any] = {}
    exec(example("how-to/topologies.md", "from word_count"), names)
    (test,) = (value for name, value in names.items() if name.startswith("test_"))
    test()


@pytest.mark.parametrize("function", ["process", "process_batch", "word_count"])
def test_the_sample_topology_is_the_one_that_its_page_shows(function: str) -> None:
    sample = Path(sample_topology.__file__).read_text()
    assert body_of(sample, function) == body_of(example("how-to/topologies.md"), function)


def test_the_page_of_topologies_shows_what_is_drawn(word_count: Topology) -> None:
    page = (DOCS / "how-to/topologies.md").read_text()
    assert f"```mermaid\n{word_count.mermaid()}```" in page


def test_what_the_table_for_users_of_storm_names_exists() -> None:
    page = (DOCS / "how-to/migrate-from-storm.md").read_text()
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| ")]
    names = [name for row in rows for name in re.findall(r"`([A-Za-z][\w.]*)`", row[1])]
    assert len(names) > 35
    places = (kinesis_spout.storm, builder, topology_conf, topology_query, kinesis_spout)
    for name in names:
        outer, _, inner = name.partition(".")
        (found,) = {getattr(place, outer) for place in places if hasattr(place, outer)}
        assert not inner or hasattr(found, inner) or inner in found.__annotations__, name


def test_the_settings_that_secure_zookeeper_are_valid() -> None:
    (settings,) = re.findall(
        r"```toml\n(.*?)```", (DOCS / "how-to/secure-zookeeper.md").read_text(), re.DOTALL
    )
    in_file = tomllib.loads(settings)["kinesis_spout"]
    config = SpoutConfig.of(stream="orders", app="billing", zookeeper_password="...", **in_file)
    assert (config.zookeeper_user, config.zookeeper_tls) == ("billing", True)


def test_the_rooms_are_those_of_the_import_contract_from_the_top_to_the_ground() -> None:
    contracts = ConfigParser()
    contracts.read(ROOT / ".importlinter")
    layers = contracts["importlinter:contract:layers-point-downwards"]["layers"].split("\n")
    (listed,) = re.findall(r"```text\n(.*?)```", (DOCS / "explanation/rooms.md").read_text(), re.DOTALL)
    rooms = [line.split()[0] for line in listed.splitlines()]
    assert rooms == [room for layer in layers if layer for room in layer.split(" | ")]


def names_in(progress: Any) -> Iterator[str]:
    """Name every field, at any depth."""
    if isinstance(progress, dict):
        for name, value in progress.items():
            yield name
            yield from names_in(value)
    elif isinstance(progress, list):
        for value in progress:
            yield from names_in(value)


def test_the_paths_of_the_page_exist() -> None:
    table = (DOCS / "explanation/paths.md").read_text().partition("## A record on Spark")[0]
    named = re.findall(r"`((?:kinesis_spout|shard_state|[a-z_]+)(?:\.[a-z_]+)+)`", table)
    assert named
    assert [name for name in named if not is_place(name)] == []


def is_place(name: str) -> bool:
    """Tell whether a dotted name is a module of the packages, or something that one defines."""
    module, _, last = name.rpartition(".")
    for root in (ROOT, ROOT / "kinesis_spout"):
        path = root.joinpath(*name.split("."))
        if path.is_dir() or path.with_suffix(".py").exists():
            return True
        source = root.joinpath(*module.split(".")).with_suffix(".py")
        if source.exists() and re.search(rf"\bdef {last}\b", source.read_text()):
            return True
    return False


def test_every_field_of_a_progress_is_described() -> None:
    page = (DOCS / "reference/progress.md").read_text()
    manager = SimpleNamespace(paused_shards=())
    consumer = SimpleNamespace(
        stream="orders", now=1.0, counters=Counters(), manager=manager, uncommitted=0, trouble=None
    )
    progress = batch_progress(
        name="billing",
        number=0,
        started=0.0,
        results=[],
        shards=cast("DriverShards", SimpleNamespace(consumer=consumer, by_id={})),
        before=Counters(),
    )
    of_source = [field.encode_name for field in msgspec.structs.fields(SourceProgress)]
    fields = [*names_in(progress), *of_source]
    snapshot = Snapshot(state="running", counters=Counters(), records_per_second=0.0)
    fields += [*snapshot.document(), *ComponentCounts().told(), "components", "spouts"]
    assert set(fields) - set(re.findall(r"\w+", page)) == set()


def body_of(source: str, function: str) -> str:
    """What a function does, without its docstring, comments and types."""
    (found,) = (
        each
        for each in ast.walk(ast.parse(source))
        if isinstance(each, ast.FunctionDef) and each.name == function
    )
    return "\n".join(
        ast.unparse(statement) for statement in found.body[ast.get_docstring(found) is not None :]
    )


@pytest.mark.parametrize(("handler", "page"), [("bill", "../README.md"), ("load", "how-to/consume.md")])
def test_a_sample_handler_is_the_one_that_its_page_shows(handler: str, page: str) -> None:
    sample = (ROOT / f"examples/handlers/{handler}.py").read_text()
    (shown,) = (
        block
        for block in re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
        if f"def {handler}(" in block
    )
    assert body_of(sample, handler) == body_of(shown, handler)


def test_what_users_copy_imports_public_names_only() -> None:
    pages = [ROOT / "README.md", *DOCS.rglob("*.md")]
    programs = [path for name in EXAMPLES_TO_COPY for path in (ROOT / "examples" / name).rglob("*.py")]
    assert pages
    assert programs
    deeper = re.compile(
        r"^ *from (kinesis_spout\.\w+\.[\w.]+|kinesis_spout\.model\b[\w.]*) import", re.MULTILINE
    )
    found = {(path.name, name) for path in (*pages, *programs) for name in deeper.findall(path.read_text())}
    # What a component in a process of its own imports, without the rest of Storm's room.
    assert {name for _, name in found} <= {"kinesis_spout.storm.multilang"}, found
