"""Renders the templates, with what every page has; reads forms."""

from collections.abc import Mapping
from hashlib import blake2b
from http import HTTPStatus
from typing import Any, Self
from urllib.parse import parse_qsl, quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

import kinesis_spout
from kinesis_spout.operations.audit import Operator
from kinesis_spout.operations.errors import WrongArguments
from kinesis_spout.operations.watch.observation import Observation
from kinesis_spout.web import drawing, wording
from kinesis_spout.web.guard import DOOR, visitor
from kinesis_spout.web.page_settings import PageSettings
from kinesis_spout.web.watched import Watched

_MAX_FORM_BYTES = 64 * 1024


class Pages:
    """Renders the templates. Thread-safe."""

    def __init__(self, watched: Watched, settings: PageSettings) -> None:
        self.watched = watched
        self.settings = settings
        self._environment = Environment(
            loader=PackageLoader("kinesis_spout.web"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.globals |= {
            "settings": settings,
            "version": kinesis_spout.__version__,
            "only": watched.only,
            "url": wording.address,
            "bar": drawing.bar,
            "css_class": drawing.css_class,
        }
        self._environment.filters |= {
            "span": wording.span,
            "millis": wording.millis,
            "ago": wording.ago,
            "number": wording.number,
            "size": wording.size,
            "digits": wording.digits,
            "query": wording.query_of,
        }

    @classmethod
    def of(cls, request: Request) -> Self:
        pages: Self = request.app.state.pages
        return pages

    def observation(self, request: Request) -> Observation:
        """The application in a request's address."""
        return self.watched.observation(request.path_params["app"], request.path_params["stream"])

    def operator(self, request: Request, why: str) -> Operator:
        who = visitor(request.headers, self.settings)
        assert who is not None, "the guard lets nobody else in"
        return Operator(who=who, why=why, door=DOOR)

    def show(
        self,
        request: Request,
        template: str,
        *,
        status: int = 200,
        read_at: float | None = None,
        **shown: Any,
    ) -> Response:
        """Render a template with what every page has; 304 for a browser that has it already."""
        params = request.path_params
        now = self.watched.world.time()
        if read_at is None:
            read_at = shown["sight"].at if "sight" in shown else now
        text = self._environment.get_template(template).render(
            app=params.get("app"),
            stream=params.get("stream"),
            counts=self.watched.counts(params.get("app"), params.get("stream")),
            now=now,
            read_at=read_at,
            here="/" + quote(request.scope["path"].lstrip("/"), safe="/~"),  # "//" would name another server
            query=dict(request.query_params),
            who=visitor(request.headers, self.settings),
            **shown,
        )
        if status != HTTPStatus.OK:
            return HTMLResponse(text, status)
        # The footer has the age of what is shown, which says nothing of whether that has changed.
        tag = f'W/"{blake2b(text.rpartition("<footer>")[0].encode(), digest_size=8).hexdigest()}"'
        if request.headers.get("if-none-match") == tag:
            return Response(
                None, HTTPStatus.NOT_MODIFIED, {"etag": tag, "x-read-seconds": f"{now - read_at:.3f}"}
            )
        return HTMLResponse(text, headers={"etag": tag})

    def error(self, request: Request, text: str, status: int) -> Response:
        return self.show(request, "error.html", status=status, text=text)


async def form_of(request: Request) -> Mapping[str, str]:
    """The fields of a form that was sent. WrongArguments: it is too large, or none."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MAX_FORM_BYTES:
            raise WrongArguments(f"expected a form of at most {_MAX_FORM_BYTES} bytes, got more")
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True))
    except UnicodeDecodeError as error:
        raise WrongArguments("expected a form as UTF-8, got other bytes") from error
