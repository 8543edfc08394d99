"""The page over a world of fakes: an application with two shards and a consumer."""

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from kinesis_spout.operations.stored_progress import Listener, StoredProgress
from kinesis_spout.ports import DeadLetterSink
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.testing import InMemoryDeadLetterSink
from kinesis_spout.web.app import build
from kinesis_spout.web.page_settings import PageSettings
from shard_state import GroupMember
from tests.support.asgi_browser import AsgiBrowser
from tests.support.consumer.letters import letter
from tests.unit.cli.fake_world import FakeWorld

HOME = "/a/billing/orders"
FIRST, SECOND = "shardId-000000000000", "shardId-000000000001"


class PageWorld(FakeWorld):
    """As the commands see it, for several applications, and without a terminal."""

    def __init__(self, shards: int = 2) -> None:
        super().__init__(shards)
        self.listener = Listener()

    @contextmanager
    def progress(self, config: SpoutConfig, *, begin: bool = False) -> Iterator[StoredProgress]:
        is_known = config.stream_name == "orders"
        with super().progress(config if is_known else config.of_stream("orders"), begin=begin) as progress:
            yield progress

    def dead_letters(self, config: SpoutConfig) -> AbstractContextManager[DeadLetterSink]:
        """Each application but ``billing`` has an empty place of its own."""
        if config.app == "billing":
            return super().dead_letters(config)
        return nullcontext(InMemoryDeadLetterSink())

    def member(self, name: str = "worker", **says: Any) -> Any:
        process = self.consumer(name)
        process.coordinator.join(GroupMember(name=name, **says).encode())
        process.group.take_part(lambda: None)
        process.group.leads()
        return process

    def put(self, count: int) -> None:
        for number in range(count):
            self.kinesis.put(json.dumps({"order": number, "card": f"secret-{number}"}).encode())

    def bury(self, *numbers: int, **changes: Any) -> None:
        self.sink.write([letter(number, **changes) for number in numbers])

    def browser(self, app: str = "billing", stream: str = "orders", **settings: Any) -> AsgiBrowser:
        config = SpoutConfig.of(app=app, stream=stream)
        page = build(self, config, PageSettings(**settings))
        self.page = page
        return AsgiBrowser(app=page)

    def steering(self, **settings: Any) -> AsgiBrowser:
        return self.browser(allow_changes=True, **settings)

    def forget_readings(self) -> None:
        """Let the next look read everything anew."""
        for observation in self.page.state.pages.watched._observations.values():
            names = ("_listing", "_stored", "_lags", "_live", "_letter_count", "_audit")
            parts = [getattr(observation, name) for name in names]
            for part in (*parts, *observation._letters.values()):
                part.expire()
                part._reading = type(part._reading)()
