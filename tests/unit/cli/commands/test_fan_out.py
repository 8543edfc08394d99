import json
from datetime import UTC, datetime
from typing import Any

import pytest

from kinesis_spout.settings import SpoutConfig
from tests.support.kinesis.in_memory_client import client_error
from tests.unit.cli.fake_world import SETTINGS, FakeWorld


class KeepsConsumers:
    """The calls of boto3's Kinesis client about registered consumers."""

    def __init__(self, *names: str) -> None:
        self.names = list(names)

    def list_stream_consumers(self, **request: Any) -> dict[str, Any]:
        arn = request["StreamARN"]
        return {
            "Consumers": [
                {
                    "ConsumerName": name,
                    "ConsumerARN": f"{arn}/consumer/{name}:1",
                    "ConsumerStatus": "ACTIVE",
                    "ConsumerCreationTimestamp": datetime(2025, 1, 2, tzinfo=UTC),
                }
                for name in self.names
            ]
        }

    def deregister_stream_consumer(self, **request: Any) -> dict[str, Any]:
        self.names.remove(request["ConsumerName"])
        return {}


class RefusesAccess(KeepsConsumers):
    def list_stream_consumers(self, **request: Any) -> dict[str, Any]:
        del request
        raise client_error("AccessDeniedException", "ListStreamConsumers")


class World(FakeWorld):
    def __init__(self, consumers: KeepsConsumers) -> None:
        super().__init__()
        self.consumers = consumers

    def client(self, config: SpoutConfig) -> Any:
        del config
        return self.consumers


def test_the_registered_consumers_are_listed() -> None:
    world = World(KeepsConsumers("billing", "other"))

    output, _ = world.call("fan-out", "list", *SETTINGS, "--json")

    assert [(each["name"], each["status"]) for each in json.loads(output)] == [
        ("billing", "ACTIVE"),
        ("other", "ACTIVE"),
    ]
    assert "billing" in world.call("fan-out", "list", *SETTINGS)[0]


def test_a_stream_without_consumers_says_so() -> None:
    assert "no registered consumers" in World(KeepsConsumers()).call("fan-out", "list", *SETTINGS)[1]


@pytest.mark.parametrize(
    ("arguments", "left"),
    [((), ["other"]), (("other",), ["billing"]), (("--set", "consumer_mode=efo"), ["other"])],
)
def test_a_consumer_is_ended_that_of_the_application_unless_another_is_named(
    arguments: tuple[str, ...], left: list[str]
) -> None:
    world = World(KeepsConsumers("billing", "other"))

    world.call("fan-out", "deregister", *arguments, *SETTINGS, "--yes")

    assert world.consumers.names == left


def test_nothing_is_ended_without_being_told() -> None:
    world = World(KeepsConsumers("billing"))

    _, errors = world.call("fan-out", "deregister", *SETTINGS, exit_code=2)

    assert "add --yes" in errors
    assert world.consumers.names == ["billing"]


def test_a_consumer_that_is_not_there_is_not_found() -> None:
    _, errors = World(KeepsConsumers("other")).call("fan-out", "deregister", *SETTINGS, "--yes", exit_code=1)

    assert "got 'billing', which is not there" in errors


def test_a_refusal_of_kinesis_is_one_line() -> None:
    _, errors = World(RefusesAccess()).call("fan-out", "list", *SETTINGS, exit_code=3)

    assert "ListStreamConsumers" in errors
