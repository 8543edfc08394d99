"""Serves the page until it is told to end."""

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import uvicorn

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.operations.world import World
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.settings.grammar.http_address import HttpAddress
from kinesis_spout.web.app import build
from kinesis_spout.web.page_settings import PageSettings

_CLOSE_SECONDS: Final = 5
"""How long requests may take when the server ends."""
_LOOK_SECONDS: Final = 0.5
"""Between two looks whether the server is to end."""


def serve(world: World, config: SpoutConfig, settings: PageSettings, ready: Callable[[str], None]) -> None:
    """Serve the page on this thread until SIGINT or SIGTERM; call ``ready`` with its address once it listens.

    InvalidConfig: the address cannot be listened on.
    """
    with _listening(settings) as listener:
        ready(f"http://{HttpAddress(*listener.getsockname()[:2])}/")
        server_of(build(world, config, settings), settings).run(sockets=[listener])


def server_of(app: Any, settings: PageSettings) -> uvicorn.Server:
    """The server, which costs next to nothing while nobody looks."""
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=settings.behind_proxy,
            forwarded_allow_ips="*" if settings.behind_proxy else None,
            timeout_graceful_shutdown=_CLOSE_SECONDS,
            lifespan="on",
        )
    )
    server.__dict__["main_loop"] = partial(_main_loop, server)
    return server


async def _main_loop(server: uvicorn.Server) -> None:
    """Uvicorn's own, with fewer looks whether it is to end: of ten a second its idling consists."""
    tenths = 0
    while not await server.on_tick(tenths):
        await asyncio.sleep(_LOOK_SECONDS)
        tenths = (tenths + round(_LOOK_SECONDS * 10)) % 864_000


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
