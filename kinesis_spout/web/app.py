"""The application that a server runs: which address shows what, and how a refusal looks."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from kinesis_spout.model.errors import (
    ConsumerAlive,
    DeadLetterError,
    InvalidConfig,
    KinesisError,
    KinesisSpoutError,
    StoreError,
)
from kinesis_spout.operations.errors import NotFound, NotReadYet
from kinesis_spout.operations.world import World
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.web import changes, screens
from kinesis_spout.web.guard import Guard
from kinesis_spout.web.page_settings import PageSettings
from kinesis_spout.web.pages import Pages
from kinesis_spout.web.watched import Watched

_STATIC: Final = Path(__file__).with_name("static")
_SWEEP_SECONDS: Final = 20.0
_CLOSE_SECONDS: Final = 10.0
"""How long the batch of a redrive that is being put may take when the server ends."""
_STATUS: Final[tuple[tuple[type[KinesisSpoutError], int], ...]] = (
    (NotFound, 404),
    (InvalidConfig, 400),
    (ConsumerAlive, 409),
    (StoreError, 503),
    (NotReadYet, 503),
    (KinesisError, 502),
    (DeadLetterError, 502),
    (KinesisSpoutError, 500),
)
"""The first that fits counts."""
_OF = "/a/{app}/{stream}"


def build(world: World, config: SpoutConfig, settings: PageSettings) -> Starlette:
    """The page of the applications that ``config`` names; see ``operations.applications.UNNAMED``."""
    watched = Watched(world, config)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        sweeper = asyncio.create_task(_sweep(watched))
        try:
            yield
        finally:
            sweeper.cancel()
            with suppress(asyncio.CancelledError):
                await sweeper
            await asyncio.to_thread(watched.close, _CLOSE_SECONDS)

    app = Starlette(
        routes=[*_routes(), Mount("/static", StaticFiles(directory=_STATIC))],
        middleware=[Middleware(Guard, settings=settings)],
        exception_handlers={KinesisSpoutError: _refused, 404: _not_found, Exception: _broken},
        lifespan=lifespan,
    )
    app.state.pages = Pages(watched, settings)
    return app


def _routes() -> list[Route]:
    shown: dict[str, Callable[[Request], Response]] = {
        "/": screens.applications,
        _OF: screens.application,
        f"{_OF}/shards/{{shard_id}}": screens.shard,
        f"{_OF}/letters": screens.letters,
        f"{_OF}/letter": screens.letter,
        f"{_OF}/redrives": screens.redrives,
        f"{_OF}/redrives/{{number:int}}": screens.redrive,
        f"{_OF}/topology": screens.topology,
        f"{_OF}/topology/{{member}}.svg": screens.picture,
        f"{_OF}/audit": screens.audit,
    }
    routes = [Route(path, screen, methods=["GET"]) for path, screen in shown.items()]
    routes += [Route(path, form, methods=["GET", "POST"]) for path, form in _forms().items()]
    return [*routes, Route("/login", changes.login, methods=["GET", "POST"])]


def _forms() -> dict[str, Any]:
    return {
        f"{_OF}/pause": changes.pause,
        f"{_OF}/resume": changes.resume,
        f"{_OF}/drain": changes.drain,
        f"{_OF}/undrain": changes.undrain,
        f"{_OF}/redrive": changes.redrive,
        f"{_OF}/redrives/{{number:int}}/stop": changes.stop_redrive,
        f"{_OF}/reset": changes.reset,
    }


async def _sweep(watched: Watched) -> None:
    while True:
        await asyncio.sleep(_SWEEP_SECONDS)
        await asyncio.to_thread(watched.close_unwatched)


def _refused(request: Request, error: Exception) -> Response:
    status = next(status for kind, status in _STATUS if isinstance(error, kind))
    return Pages.of(request).error(request, str(error), status)


def _not_found(request: Request, _: Exception) -> Response:
    return Pages.of(request).error(request, "there is no such page", 404)


def _broken(request: Request, _: Exception) -> Response:
    return Pages.of(request).error(request, "an error of this server: its log tells where", 500)
