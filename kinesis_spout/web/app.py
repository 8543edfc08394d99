"""The page as an application and its server: the addresses of the screens, the form of a refusal."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
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
from kinesis_spout.settings.grammar.http_address import HttpAddress
from kinesis_spout.web import changes, screens
from kinesis_spout.web.guard import Guard, SignIns
from kinesis_spout.web.page_settings import PageSettings
from kinesis_spout.web.pages import Pages
from kinesis_spout.web.watched import Watched

_STATIC: Final = Path(__file__).with_name("static")
_COMPRESS_LEVEL: Final = 6
"""A page of 1,000 shards is 20 times as small after 1 to 4 ms; more effort saves next to nothing."""
_SWEEP_SECONDS: Final = 20.0
_CLOSE_SECONDS: Final = 10.0
"""Time for the batch of a redrive that is being put when the server ends."""
_REQUESTS_SECONDS: Final = 5
"""Time for requests when the server ends."""
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
    """The page of the applications that ``config`` names; see ``operations.world.UNNAMED``."""
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
        middleware=[
            Middleware(Guard, settings=settings),
            Middleware(GZipMiddleware, compresslevel=_COMPRESS_LEVEL),
        ],
        exception_handlers={KinesisSpoutError: _refused, 404: _not_found, Exception: _broken},
        lifespan=lifespan,
    )
    app.state.pages = Pages(watched, settings)
    app.state.sign_ins = SignIns(settings)
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
        f"{_OF}/audit": screens.audit,
    }
    routes = [Route(path, screen, methods=["GET"]) for path, screen in shown.items()]
    routes += [Route(path, form, methods=["GET", "POST"]) for path, form in _forms().items()]
    return [*routes, Route("/login", changes.login, methods=["GET", "POST"])]


def _forms() -> dict[str, Any]:
    return {
        **{f"{_OF}/{what}": partial(changes.of_shards, what=what) for what in ("pause", "resume")},
        **{f"{_OF}/{what}": partial(changes.of_member, what=what) for what in ("drain", "undrain")},
        **{f"{_OF}/{what}": partial(changes.of_letters, what=what) for what in ("redrive", "dismiss")},
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


def serve(world: World, config: SpoutConfig, settings: PageSettings, ready: Callable[[str], None]) -> None:
    """Serve the page on this thread until SIGINT or SIGTERM; call ``ready`` with its address once it listens.

    InvalidConfig: the address cannot be listened on.
    """
    with _listening(settings) as listener:
        ready(f"http://{HttpAddress(*listener.getsockname()[:2])}/")
        server_of(build(world, config, settings), settings).run(sockets=[listener])


def server_of(app: Any, settings: PageSettings) -> uvicorn.Server:
    return uvicorn.Server(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=settings.behind_proxy,
            forwarded_allow_ips="*" if settings.behind_proxy else None,
            timeout_graceful_shutdown=_REQUESTS_SECONDS,
            lifespan="on",
        )
    )


def _listening(settings: PageSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((settings.host, settings.port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise InvalidConfig(
            f"http: expected an address to listen on, got {settings.host}:{settings.port}: {error.strerror}; "
            "another program may listen there"
        ) from error
    return listener
