"""``make test-aws`` itself, against emulators: what it checks, and that its stream is gone whatever happens."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kinesis_spout.kinesis import KinesisClientSettings, stream_names
from tests.aws import __main__ as script
from tests.aws import reading, resharding
from tests.aws.account import PREFIX, TAGS, own_stream
from tests.aws.check import check
from tests.aws.scene import Scene, expect
from tests.support.kinesis.endpoints import REPOSITORY, KinesisEndpoint
from tests.support.waiting import wait_until

pytestmark = pytest.mark.endpoint

QUICK = tuple(each for each in reading.CHECKS if "ARN" in each.sentence or "LATEST" in each.sentence)


@pytest.fixture(autouse=True)
def _account(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    for name, value in {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)


def own_streams(endpoint: KinesisEndpoint) -> list[str]:
    return [name for name in stream_names(endpoint.client()) if name.startswith(PREFIX)]


def run(endpoint: KinesisEndpoint, *arguments: str) -> int:
    return script.main(
        [
            "--endpoint",
            str(endpoint.settings.endpoint_url),
            "--emulator",
            "moto",
            "--without-java",
            *arguments,
        ]
    )


def test_each_check_is_passed_or_skipped_with_its_reason_and_the_stream_is_removed(
    moto_server: KinesisEndpoint, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    differing = [each for each in script.CHECKS if each.skipped("moto", frozenset())]
    monkeypatch.setattr(script, "CHECKS", (*QUICK, *differing))

    assert run(moto_server) == 0
    said = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in said[1:-2]] == ["ok"] * len(QUICK) + ["skipped"] * len(differing)
    assert all(": " in line for line in said if line.startswith("skipped"))
    assert said[-1] == "Everything that was checked is as expected."
    assert own_streams(moto_server) == []


def test_a_check_that_fails_is_told_and_the_others_go_on(
    moto_server: KinesisEndpoint, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @check("something is so")
    def refuted(_: Scene) -> None:
        expect(condition=False, what="expected this, got that")

    monkeypatch.setattr(script, "CHECKS", (refuted, *QUICK[:1]))

    assert run(moto_server) == 1
    said = capsys.readouterr().out
    assert "FAILED   something is so: CheckFailed: expected this, got that\nok       " in said
    assert "1 of 2 checks failed" in said
    assert own_streams(moto_server) == []


def test_a_split_and_a_merge_are_walked_where_shards_end(
    kinesis_local: KinesisEndpoint, tmp_path: Path
) -> None:
    client = kinesis_local.client()
    with own_stream(client, lambda _: None) as stream:
        scene = Scene(stream=stream, kinesis=kinesis_local.settings, settings={}, options={}, folder=tmp_path)
        scene.wait_active()
        tags = client.list_tags_for_stream(StreamName=stream)["Tags"]
        assert {tag["Key"]: tag.get("Value") for tag in tags} == TAGS
        for each in resharding.CHECKS:
            each.run(scene)
    wait_until(lambda: stream not in own_streams(kinesis_local), "the stream is removed")


def test_a_run_that_ctrl_c_ends_removes_its_stream(moto_server: KinesisEndpoint) -> None:
    command = [sys.executable, "-m", "tests.aws", "--emulator", "moto", "--endpoint"]
    with subprocess.Popen(
        [*command, str(moto_server.settings.endpoint_url)], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert first.startswith(f"Making the stream {PREFIX}")
        wait_until(lambda: own_streams(moto_server) != [], "the stream is made")
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
        assert process.wait(60) == 128 + signal.SIGINT
    assert "Removing the stream" in rest
    assert own_streams(moto_server) == []


def test_without_credentials_it_says_so_once_and_asks_nobody(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setattr(KinesisClientSettings, "connect", lambda _: pytest.fail("nobody is to be asked"))

    assert script.main(["--yes"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("expected credentials of AWS, found none: set AWS_PROFILE or ")
    assert err.count("\n") == 1


def test_without_a_terminal_and_a_yes_it_names_its_cost_and_makes_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(KinesisClientSettings, "connect", lambda _: pytest.fail("nobody is to be asked"))

    assert script.main([]) == 2
    out, err = capsys.readouterr()
    assert "0.12 USD" in out
    assert "--yes" in err


def test_an_endpoint_without_its_kind_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert script.main(["--endpoint", "http://127.0.0.1:9"]) == 2
    assert "--emulator" in capsys.readouterr().err
