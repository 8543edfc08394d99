"""Serves the page until it is told to end."""

import socket
from collections.abc import Callable
from typing import Final

import uvicorn

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.operations.world import World
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.web.app import build
from kinesis_spout.web.page_settings import PageSettings

_CLOSE_SECONDS: Final = 5
"""How long requests may take when the server ends."""


def serve(world: World, config: SpoutConfig, settings: PageSettings, ready: Callable[[str], None]) -> None:
    """Serve the page on this thread until SIGINT or SIGTERM; call ``ready`` with its address once it listens.

    InvalidConfig: the address cannot be listened on.
    """
    with _listening(settings) as listener:
        host, port = listener.getsockname()[:2]
        config_of_server = uvicorn.Config(
            build(world, config, settings),
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=settings.behind_proxy,
            forwarded_allow_ips="*" if settings.behind_proxy else None,
            timeout_graceful_shutdown=_CLOSE_SECONDS,
            lifespan="on",
        )
        ready(f"http://{f'[{host}]' if ':' in host else host}:{port}/")
        uvicorn.Server(config_of_server).run(sockets=[listener])


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
