"""The README and the pages of docs/, followed line by line by somebody who has nothing but the wheel.

Their Python is run as scripts, their commands are typed, both in another folder and with no more in the
environment than `localstack/up` prints. What waits for ever is watched until it did what the page says; Ctrl-C
stops it.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from kinesis_spout.dead_letters.json_lines import JsonLinesSink
from kinesis_spout.kinesis.write.put_records import Entry
from kinesis_spout.producer.spool import DiskSpool
from tests.wheel import documents
from tests.wheel.documents import Block
from tests.wheel.installed_wheel import InstalledWheel
from tests.wheel.readers_shell import ORDERS, ReadersShell
from tests.wheel.terminal import Program

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient

pytestmark = [
    pytest.mark.second_environment,
    pytest.mark.spark,
    pytest.mark.endpoint,
    pytest.mark.zookeeper,
    pytest.mark.timeout(3_000),  # the first of them installs 1.3 GB
]

GOOD, NEGATIVE, WITHOUT_AMOUNT = ORDERS
TOPOLOGY = "kinesis-spout topology"
TO_TOPOLOGY = "--stream sentences"
"""The end of the line that puts what the sample topology reads."""
SPOOL = "kinesis-spout spool"
BY_RECORD = 'spout.foreach_record(session("billing"'
ROOT = Path(__file__).parents[2]
BLOCK = 4096
"""Bytes: a file system gives out no less."""


def in_order(program: Program) -> str:
    """Wait for the end of a program that was asked to stop; give its output.

    Before the stop, tracebacks of handlers that failed may be in it.
    """
    output = program.ends()
    _, stopping, after = output.partition("stopping: ")
    assert stopping
    assert "Traceback" not in after
    return output


def charges_by_record(shell: ReadersShell, example: Block) -> None:
    with shell.runs_example(example.text) as program:
        program.shows("charging 12.5")
        program.until(lambda: len(letters(shell)) >= 2, "two dead letters")
        program.ctrl_c()
        in_order(program)
    assert letters(shell) == {(NEGATIVE, "rejected", 1), (WITHOUT_AMOUNT, "exhausted", 4)}


def letters(shell: ReadersShell) -> set[tuple[str, str, int]]:
    """What was given up, why, and after how many attempts; 4 stands for more: few others tell who is at fault."""
    sink = JsonLinesSink(shell.folder / ".kinesis-spout/billing/orders/dead-letters")
    return {(letter.data.decode(), letter.reason, min(letter.attempts, 4)) for letter in sink.read()}


def tells_each(shell: ReadersShell, example: Block) -> None:
    with shell.runs_example(example.text) as program:
        program.shows("told ")
        program.ctrl_c()
        assert "None" not in in_order(program)


def loads_into_parquet(shell: ReadersShell, example: Block) -> None:
    orders = shell.folder / "orders.parquet"

    def loaded() -> set[str]:
        files = list(orders.glob("*.parquet"))  # while it is written, a file is in a folder below
        return {amount for file in files for amount in pq.read_table(file).column("a").to_pylist()}

    with shell.runs_example(example.text) as program:
        program.until(lambda: loaded() == {"12.5", "-3"}, "both amounts in orders.parquet")
        program.ctrl_c()
        in_order(program)


def audits(shell: ReadersShell, example: Block) -> None:
    with shell.runs_example(example.text) as program:
        program.shows("audited 12.5").shows("audited -3")
        program.ctrl_c()
        assert "None" not in in_order(program)


def pays_each_once(shell: ReadersShell, example: Block) -> None:
    with shell.runs_example(example.text) as program:
        program.shows(f"paid {GOOD}").shows(f"paid {NEGATIVE}")
        program.ctrl_c()
        assert "paid before" not in in_order(program)


def reads_to_the_end(shell: ReadersShell, example: Block) -> None:
    with shell.runs_example(example.text) as program:
        shown = program.ends()
    assert all(order in shown for order in ORDERS)


def shows_batches(shell: ReadersShell, example: Block) -> None:
    with shell.runs_example(example.text) as program:
        program.shows("|  12.5|").shows("|  -3.0|").shows("|  NULL|")
        program.ctrl_c()
        in_order(program)


def writes_again(shell: ReadersShell, example: Block) -> None:
    with shell.runs_example(example.text) as program:
        program.ends()
    assert shell.data_of("again") == shell.data_of("orders")


def charges_each(shell: ReadersShell, example: Block) -> None:
    with shell.runs_example(example.text) as program:
        program.shows("charging 12.5").shows("charging -3")
        sink = JsonLinesSink(shell.folder / "dead-letters")
        program.until(lambda: bool(list(sink.read())), "a dead letter")
        program.until(
            lambda: any((shell.folder / "billing-checkpoint/commits").glob("0")), "batch 0 committed"
        )
        program.ctrl_c()
        in_order(program)
    (letter,) = sink.read()
    assert letter.data.decode() == WITHOUT_AMOUNT
    assert letter.attempts >= 4


def passes(shell: ReadersShell, example: Block) -> None:
    """As pytest would find it; the wheel does not bring pytest."""
    code = example.text + "\n\ntest_what_becomes_of_an_order()\nprint('passed')\n"
    with shell.runs_example(code) as program:
        assert program.ends().splitlines()[-1] == "passed"


def is_quiet(shell: ReadersShell, example: Block) -> None:
    with shell.runs_example(example.text) as program:
        assert program.ends() == ""


def prints(*lines: str) -> Callable[[ReadersShell, Block], None]:
    """Expect an example that ends to print these lines."""

    def does(shell: ReadersShell, example: Block) -> None:
        with shell.runs_example(example.text) as program:
            assert program.ends().splitlines() == list(lines)

    return does


def puts_many(shell: ReadersShell, example: Block) -> None:
    """To a stream of its own: other examples read the orders."""
    kinesis = shell.kinesis()
    kinesis.create_stream(StreamName="payments", ShardCount=1)
    kinesis.get_waiter("stream_exists").wait(StreamName="payments")
    prints("0 of 1000 failed", "1001 sent")(shell, example)


def passes_with_its_topology(shell: ReadersShell, example: Block) -> None:
    """The test of the topology that its page shows before."""
    [topology] = [each for each in documents.python_examples() if "def word_count():" in each.text]
    (shell.folder / "word_count.py").write_text(topology.text)
    name = example.text.partition("def test_")[2].partition("(")[0]
    line = next(line for line in documents.commands() if line.startswith("export KINESIS_SPOUT_"))
    settings = dict(word.split("=") for word in shlex.split(line)[1:])
    code = f"import os\nos.environ |= {settings}\n{example.text}\n\ntest_{name}()\nprint('passed')\n"
    with shell.runs_example(code) as program:
        assert program.ends().splitlines()[-1] == "passed"


def leads_in_turn(shell: ReadersShell, example: Block) -> None:
    with shell.runs_example(example.text) as first:
        first.shows("bill 3")
        with shell.runs_example(example.text) as second:
            first.ctrl_c()
            assert "hands over: stopped" in in_order(first)
            second.shows("bill 1").shows("bill 3")
            second.terminate()
            assert "hands over: stopped" in in_order(second)


def answers_its_host(*answers: tuple[str, str]) -> Callable[[ReadersShell, Block], None]:
    """Expect an answer to each frame, typed as a host would write it, after the hand-shake."""

    def talks(shell: ReadersShell, example: Block) -> None:
        with shell.runs_example(example.text) as program:
            program.type(f'{{"conf":{{}},"context":{{"taskid":1}},"pidDir":"{shell.folder}"}}\nend\n')
            program.shows('{"pid":')
            for frame, answer in answers:
                program.type(f"{frame}\nend\n")
                program.shows(answer)
            program.type("\x04")  # the end of its input
            program.ends()

    return talks


splits = answers_its_host(
    ('{"id":"1","comp":"lines","stream":"s","task":2,"tuple":["to be"]}', '{"command":"ack","id":"1"}\nend\n')
)


def updates_its_cache(shell: ReadersShell, example: Block) -> None:
    with shell.runs_example(example.text) as program:
        for order in ORDERS:
            program.shows(f"cache: {order} -> {order}")
        program.ctrl_c()
        in_order(program)


EXPECTED: dict[str, Callable[[ReadersShell, Block], None]] = {
    BY_RECORD: charges_by_record,
    "async def notify(record)": tells_each,
    'until="latest"': reads_to_the_end,
    "def log_events(record)": is_quiet,
    "spout.foreach_batch(": loads_into_parquet,
    "spout.open()": audits,
    "ON CONFLICT DO NOTHING": pays_each_once,
    '.writeStream.format("console")': shows_batches,
    '.write.format("kinesis")': writes_again,
    ".foreachBatch(bill_each)": charges_each,
    "from kinesis_spout.testing import run": passes,
    "logging.basicConfig(": is_quiet,
    "LeaderCareer(": leads_in_turn,
    "DiskSpool(": is_quiet,
    'app="cache"': updates_its_cache,
    'app="cache-plain"': updates_its_cache,
    "KeyedRate(": prints("update apple", "apple has to wait", "update pear"),
    "QueueCoordinator(": prints("tea costs 3", "accepted"),
    "with KinesisProducer(": prints("3 sent"),
    "producer.put_many(": puts_many,
    "class CountWords(StatefulBolt)": prints("2"),
    "def word_count():": is_quiet,
    "from word_count import word_count": passes_with_its_topology,
    "from kinesis_spout.storm import ShellBolt": is_quiet,
    "Split().run()": splits,
}
"""By what only this example has."""
WITHOUT_SPARK = {
    "spout.open()",
    "ON CONFLICT DO NOTHING",
    "from kinesis_spout.testing import run",
    "logging.basicConfig(",
    "LeaderCareer(",
    "DiskSpool(",
    'app="cache-plain"',
    "KeyedRate(",
    "QueueCoordinator(",
    "with KinesisProducer(",
    "producer.put_many(",
    "Split().run()",
}
"""These run where nothing but `pip install kinesis-spout` was done."""


@pytest.mark.parametrize(
    "example", documents.python_examples(), ids=lambda example: f"{example.page}:{example.line}"
)
def test_an_example_does_what_its_page_says(
    example: Block, readers_shell: ReadersShell, plain_shell: ReadersShell
) -> None:
    marks = [mark for mark in EXPECTED if mark in example.text]
    assert len(marks) == 1, f"expected one expectation of the example, found {len(marks)}:\n{example.text}"
    EXPECTED[marks[0]](plain_shell if marks[0] in WITHOUT_SPARK else readers_shell, example)


STOPPED = (BY_RECORD, "spout.open()", "ON CONFLICT DO NOTHING", 'app="cache-plain"')
"""Programs that show each order that they handle."""


@contextmanager
def steady_orders(kinesis: "KinesisClient", stream: str) -> Iterator[set[int]]:
    """Put an order after the other while the context is open; give the amounts of those put so far."""
    put, over = set[int](), threading.Event()

    def go_on() -> None:
        for amount in count(1):
            if over.wait(0.01):
                return
            kinesis.put_record(
                StreamName=stream,
                PartitionKey=f"customer-{amount}",
                Data=json.dumps({"amount": amount}).encode(),
            )
            put.add(amount)

    with ThreadPoolExecutor(1) as thread:
        going_on = thread.submit(go_on)
        try:
            yield put
        finally:
            over.set()
            going_on.result()


def handled(output: str) -> Counter[int]:
    """Count the orders of which a program says that it handled them."""
    return Counter(
        map(int, re.findall(r"(?:charging|audited|paid.*|cache.*?) (?:{\"amount\": )?(\d+)", output))
    )


@pytest.mark.parametrize("stop", [Program.ctrl_c, Program.terminate])
@pytest.mark.parametrize("mark", STOPPED)
def test_a_program_that_is_stopped_ends_in_order_and_the_next_start_repeats_nothing(
    mark: str, stop: Callable[[Program], None], readers_shell: ReadersShell, plain_shell: ReadersShell
) -> None:
    shell, stream = plain_shell if mark in WITHOUT_SPARK else readers_shell, f"steady-{uuid.uuid4().hex}"
    example = next(each for each in documents.python_examples() if mark in each.text)
    code = example.text.replace('"orders"', f'"{stream}"')
    assert code != example.text
    kinesis = shell.kinesis()
    kinesis.create_stream(StreamName=stream, ShardCount=2)
    kinesis.get_waiter("stream_exists").wait(StreamName=stream)
    with steady_orders(kinesis, stream) as put:
        with shell.runs_example(code) as program:
            program.until(lambda: len(handled(program.output)) >= 50, "50 orders")
            stop(program)
            first = handled(in_order(program))
        with shell.runs_example(code) as program:
            program.until(lambda: len(handled(program.output)) >= 50, "50 more")
            stop(program)
            second = handled(in_order(program))
    with shell.runs_example(code) as program:
        program.until(lambda: put == set(first + second + handled(program.output)), "all orders")
        stop(program)
        third = handled(in_order(program))
    assert first + second + third == Counter(put)


def test_without_an_extra_there_is_neither_spark_nor_arrow_and_little_else(
    plain_wheel: InstalledWheel,
) -> None:
    there = {folder.name for folder in plain_wheel.site_packages.iterdir()}
    assert not {"pyspark", "py4j", "pyarrow", "numpy", "pandas"} & there


def test_it_takes_as_much_room_as_the_pages_say(plain_wheel: InstalledWheel) -> None:
    folders = [
        folder
        for folder in plain_wheel.site_packages.iterdir()
        if not folder.name.startswith(("pip", "setuptools", "pkg_resources"))  # of the environment itself
    ]
    # As pip does for a user, and did not here.
    subprocess.run([plain_wheel.program("python"), "-m", "compileall", "-q", *folders], check=True)
    files = [path for folder in folders for path in (folder, *folder.rglob("*")) if path.is_file()]
    megabytes = sum(-(-path.stat().st_size // BLOCK) * BLOCK for path in files) / 1e6
    said = documents.sizes_on_disk("pip install kinesis-spout")
    assert said
    assert [size for size in said if not 0.9 <= megabytes / size <= 1.1] == [], f"{megabytes:.0f} MB"


@pytest.mark.parametrize(
    ("extra", "program"),
    [
        ("spark", ["python", "-c", "from kinesis_spout import session"]),
        ("spark", ["python", "-c", "from kinesis_spout.storm import TopologyBuilder"]),
        ("spark", ["kinesis-spout", "run", "my_module:bill", "--stream", "orders", "--app", "billing"]),
        ("spark", ["python", "-c", "from kinesis_spout.zookeeper.java_server import find_jars; find_jars()"]),
        ("arrow", ["python", "-c", "from kinesis_spout.kinesis import SCHEMA"]),
        ("metrics", ["python", "-c", "from kinesis_spout.monitoring import PrometheusCollector"]),
        ("otel", ["python", "-c", "from kinesis_spout.monitoring import export_to_opentelemetry"]),
        ("web", ["kinesis-spout", "web"]),
    ],
)
def test_what_needs_an_extra_says_which(plain_wheel: InstalledWheel, extra: str, program: list[str]) -> None:
    said = plain_wheel.refuses(*program)
    assert f'pip install "kinesis-spout[{extra}]"' in said
    *before, last = said.splitlines()
    if program[0] == "kinesis-spout":
        assert before == []
        assert last.startswith("error: ")


def test_the_tutorial_shows_what_it_says(readers_shell: ReadersShell) -> None:
    for step in documents.tutorial():
        if step.language == "python":
            (readers_shell.folder / "bill.py").write_text(step.text)
        elif not any("localstack/up" in line for line in step.commands):
            with readers_shell.types(*step.commands) as program:
                shown = program.ends()
            assert (missing := documents.first_missing(step.output, shown)) is None, (
                f"{missing!r} in:\n{shown}"
            )


def test_every_command_does_what_its_page_says(readers_shell: ReadersShell) -> None:
    typed = [
        line
        for line in documents.commands()
        if line.startswith("kinesis-spout ")
        and not line.startswith((TOPOLOGY, SPOOL))
        and not line.endswith(TO_TOPOLOGY)
    ]

    def runs(beginning: str) -> Program:
        [line] = [line for line in typed if line.startswith(beginning)]
        typed.remove(line)
        return readers_shell.runs(*shlex.split(line, comments=True))

    handler = next(each for each in documents.python_examples() if BY_RECORD in each.text)
    (readers_shell.folder / "my_module.py").write_text(handler.functions)
    with runs("kinesis-spout put '{\"amount\": 12.5}'") as put:
        assert "records put: 1" in put.ends()
    with runs("kinesis-spout run") as program:
        program.shows("running: ")
        with runs("kinesis-spout put '{\"amount\": 7}'") as put:
            assert "records put: 1" in put.ends()
        readers_shell.puts(NEGATIVE)
        program.shows("charging 7").shows("dead-lettered 1")
        program.ctrl_c()
        last = program.ends(exit_code=130).rpartition("stopped: ")[2]
        for figure in ("delivered 2", "acked 1", "retried 0", "dead-lettered 1"):
            assert figure in last

    with runs("kinesis-spout shards") as program:
        assert program.ends().count("ready") == 2
    for command, shown in (
        ("resume", "nothing is paused"),
        ("checkpoints show", "billing on orders; members: none"),
        ("dead-letters list", "negative amount"),
        ("dead-letters dismiss", "letters dismissed: 0"),
    ):
        with runs(f"kinesis-spout {command}") as program:
            assert shown in program.ends()
    with runs("kinesis-spout dead-letters redrive") as program:
        program.shows("1 letter (1 rejected) back on their stream?").type("y\n")
        assert "records back on their stream: 1" in program.ends()
    with runs("kinesis-spout web") as program:
        program.shows("the page is at http://127.0.0.1:8080/")
        program.ctrl_c()
        program.ends(exit_code=130)
    with runs("kinesis-spout checkpoints reset") as program:
        program.shows("reset the progress?").type("y\n")
        assert "the next consumer to start continues there" in program.ends()
    with runs("kinesis-spout audit") as program:
        shown = program.ends()
        assert "redrive" in shown
        assert "reset" in shown
    with runs("kinesis-spout tail") as program:
        program.shows('customer-7  {"amount": 7}')
        program.ctrl_c()
        program.ends(exit_code=130)
    with runs("kinesis-spout options") as program:
        assert "retry_limit" in program.ends()
    with runs("kinesis-spout doctor") as program:
        shown = program.ends()
        assert "orders: active" in shown
        assert "missing" not in shown
    assert not typed, f"expected a test of each command that the pages have, found none of {typed}"


def test_the_commands_of_topologies_do_what_their_page_says(readers_shell: ReadersShell) -> None:
    """In a folder that has the sample topology."""
    typed = [line for line in documents.commands() if line.startswith(TOPOLOGY) or line.endswith(TO_TOPOLOGY)]
    settings = [line for line in documents.commands() if line.startswith("export KINESIS_SPOUT_")]
    assert len(settings) == 2, "the stream with the application, and where to begin"
    sample = (ROOT / "examples" / "topologies" / "word_count.py").read_text()
    (readers_shell.folder / "word_count.py").write_text(sample)
    kinesis = readers_shell.kinesis()
    kinesis.create_stream(StreamName="sentences", ShardCount=1)
    kinesis.get_waiter("stream_exists").wait(StreamName="sentences")

    def types(beginning: str) -> Program:
        [line] = [line for line in typed if line.startswith(beginning)]
        typed.remove(line)
        return readers_shell.types(*settings, f"exec {line}")

    with types(f"{TOPOLOGY} explain") as program:
        assert "Tuples of sentences: 2 stages, 1 exchange in a micro-batch" in program.ends()
    with types("kinesis-spout put") as program:
        assert "records put: 1" in program.ends()
    with types(f"{TOPOLOGY} run") as program:
        program.shows("be: 2")
        program.ctrl_c()
        assert "acked 1" in program.ends(exit_code=130).rpartition("stopped: ")[2]
    with types(f"{TOPOLOGY} show") as program:
        assert program.ends().startswith("flowchart LR")
    assert not typed, f"expected a test of each command that the pages have, found none of {typed}"


def test_the_commands_of_a_spool_do_what_their_page_says(readers_shell: ReadersShell) -> None:
    typed = [line for line in documents.commands() if line.startswith(SPOOL)]
    with DiskSpool(readers_shell.folder / "spool" / "orders", stream="orders") as spool:
        spool.append(Entry("customer-7", NEGATIVE.encode()))

    def runs(beginning: str) -> Program:
        [line] = [line for line in typed if line.startswith(beginning)]
        typed.remove(line)
        return readers_shell.runs(*shlex.split(line))

    with runs(f"{SPOOL} list") as program:
        assert "left over" in program.ends()
    assert not typed, f"expected a test of each command that the pages have, found none of {typed}"


def test_the_commands_that_need_nothing_run_from_the_wheel(plain_shell: ReadersShell) -> None:
    for command in (["kinesis-spout"], ["python", "-m", "kinesis_spout"]):
        with plain_shell.runs(*command, "--version") as program:
            assert program.ends() == f"kinesis-spout {plain_shell.wheel.version}\n"
    with plain_shell.runs("kinesis-spout", "--help") as program:
        assert "kinesis-spout run" in program.ends()
    with plain_shell.runs("kinesis-spout", "options", "--json") as program:
        assert "retry_limit" in {option["name"] for option in json.loads(program.ends())}
    with plain_shell.runs("kinesis-spout", "metrics", "--alerts") as program:
        assert "- alert: KinesisSpoutNoProgress" in program.ends()
    with plain_shell.runs("kinesis-spout", "metrics", "--dashboard") as program:
        assert json.loads(program.ends())["title"] == "kinesis-spout"


@pytest.mark.skipif(shutil.which(os.environ.get("CC", "gcc")) is None, reason="no C compiler on PATH")
def test_the_wheel_has_the_native_decoder(plain_wheel: InstalledWheel) -> None:
    program = "from kinesis_spout.kinesis import native; print(native.decoder is not None)"
    environment = {name: value for name, value in os.environ.items() if name != "KINESIS_SPOUT_PURE_PYTHON"}

    found = subprocess.run(
        [plain_wheel.program("python"), "-I", "-c", program],
        check=True,
        capture_output=True,
        text=True,
        env=environment,
    )

    assert found.stdout.strip() == "True"
