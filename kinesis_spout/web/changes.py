"""Screens that change something: each a form that says what will happen and asks why, and its action.

A form is shown only for what would be done now; where it would be refused, the page says why instead.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from kinesis_spout.operations import group
from kinesis_spout.operations.checkpoints import preview_reset, reset_as_previewed
from kinesis_spout.operations.dead_letters import ChosenLetters, chosen_letters, dismiss
from kinesis_spout.operations.errors import WrongArguments
from kinesis_spout.operations.watch.redrives import Redrive
from kinesis_spout.web.guard import COOKIE, cookie_value
from kinesis_spout.web.pages import Pages, form_of
from kinesis_spout.web.screens import choice_of
from kinesis_spout.web.wording import address

_SLOW_SECONDS: Final = 0.5
"""A wrong token is answered after this."""
_MAX_RATE: Final = 1_000_000.0


class Refused(WrongArguments):
    """A form was not filled in as it asks."""


async def of_shards(request: Request, *, what: str) -> Response:
    pages = Pages.of(request)
    shard_id = request.query_params.get("shard") or None

    def values() -> dict[str, Any]:
        sight = pages.observation(request).look()
        if shard_id is not None:
            sight.shard(shard_id)
        pauses = {each.view.owner: each.view.pause for each in sight.shards if each.view.pause}
        return {"what": what, "shard_id": shard_id, "paused": sight.paused, "member_pauses": pauses}

    def carry_out(fields: Mapping[str, Any]) -> Response:
        observation = pages.observation(request)
        (group.pause if what == "pause" else group.resume)(
            pages.watched.world,
            observation.config,
            [] if shard_id is None else [shard_id],
            by=pages.operator(request, _reason(fields)),
        )
        observation.changed()
        return _back(request, *(() if shard_id is None else ("shards", shard_id)))

    return await _form(request, _page(request, "change_shards.html", values), carry_out)


async def of_member(request: Request, *, what: str) -> Response:
    pages = Pages.of(request)
    member = request.query_params.get("member", "")

    def values() -> dict[str, Any]:
        view = pages.observation(request).look().group
        view.check_alive(member)
        found = next(each for each in view.members if each.name == member)
        others = [each for each in view.members if not each.draining and each.name != member]
        return {"what": what, "member": found, "owned": view.owners[member], "others": len(others)}

    def carry_out(fields: Mapping[str, Any]) -> Response:
        observation = pages.observation(request)
        (group.drain if what == "drain" else group.end_drain)(
            pages.watched.world, observation.config, member, by=pages.operator(request, _reason(fields))
        )
        observation.changed()
        return _back(request)

    return await _form(request, _page(request, "change_member.html", values), carry_out)


async def of_letters(request: Request, *, what: str) -> Response:
    pages = Pages.of(request)
    choice = choice_of(request)

    def chosen() -> AbstractContextManager[ChosenLetters]:
        return chosen_letters(pages.watched.world, pages.observation(request).config, choice)

    def values() -> dict[str, Any]:
        with chosen() as letters:
            return {"what": what, "choice": choice, "count": len(letters), "text": letters.text}

    def carry_out(fields: Mapping[str, Any]) -> Response:
        observation = pages.observation(request)
        config, by = observation.config, pages.operator(request, _reason(fields))
        with chosen() as letters:
            if not choice.message_ids:
                _check_count(fields, len(letters))
            if what == "dismiss":
                dismiss(pages.watched.world, config, letters, by)
                observation.changed()
                return _back(request, "letters")
        number = pages.watched.redrives.start(
            Redrive(pages.watched.world, config, choice, rate=_rate(fields), by=by, ended=observation.changed)
        )
        return _back(request, "redrives", str(number))

    return await _form(request, _page(request, "change_letters.html", values), carry_out)


async def stop_redrive(request: Request) -> Response:
    pages = Pages.of(request)
    number = request.path_params["number"]

    def find() -> Any:
        return pages.watched.redrives.find(pages.observation(request).config, number)

    def shown(problem: str | None = None) -> Response:
        del problem
        find()
        return _back(request, "redrives", str(number))

    def carry_out(fields: Mapping[str, Any]) -> Response:
        del fields
        find().stop(pages.operator(request, ""))
        return _back(request, "redrives", str(number))

    return await _form(request, shown, carry_out)


async def reset(request: Request) -> Response:
    pages = Pages.of(request)
    to = request.query_params.get("to", "").strip()
    shard_ids = request.query_params.getlist("shard")

    def values() -> dict[str, Any]:
        observation = pages.observation(request)
        sight = observation.look()
        told = {"sight": sight, "to": to, "shard_ids": shard_ids, "preview": None}
        if to and not sight.group.members:
            try:
                told["preview"] = preview_reset(pages.watched.world, observation.config, to, shard_ids)
            except WrongArguments as error:
                told["problem"] = str(error)
        return told

    def carry_out(fields: Mapping[str, Any]) -> Response:
        observation = pages.observation(request)
        by = pages.operator(request, _reason(fields))
        reset_as_previewed(
            pages.watched.world,
            observation.config,
            fields.get("target", ""),
            shard_ids,
            expected=_typed_count(fields),
            by=by,
        )
        observation.changed()
        return _back(request)

    return await _form(request, _page(request, "reset.html", values), carry_out)


async def login(request: Request) -> Response:
    """Ask for the token, and keep in a cookie that it was given, and by whom."""
    pages = Pages.of(request)
    settings = pages.settings
    following = _of_this_server(request.query_params.get("next", "/"))
    if settings.token is None:
        return RedirectResponse("/", 303)
    if request.method != "POST":
        return await run_in_threadpool(pages.show, request, "login.html", problem=None, name="")
    fields = await form_of(request)
    name = fields.get("name", "").strip()[:100]
    is_token = settings.is_token(fields.get("token", "").strip())
    if not is_token:
        request.app.state.sign_ins.refuse(request.scope, name)
    if not (name and is_token):
        await asyncio.sleep(_SLOW_SECONDS)
        problem = "this is not the token of this server" if name else "say who you are: the audit names you"
        return await run_in_threadpool(
            partial(pages.show, request, "login.html", status=401, problem=problem, name=name)
        )
    answer = RedirectResponse(following, 303)
    answer.set_cookie(
        COOKIE,
        cookie_value(name, settings),
        httponly=True,
        samesite="lax",
        secure=request.scope["scheme"] == "https",
    )
    return answer


def _page(request: Request, template: str, values: Callable[[], dict[str, Any]]) -> Callable[..., Response]:
    """A form as a page, which says the ``problem`` with what was sent, or one that ``values`` already have."""

    def shown(problem: str | None = None) -> Response:
        told = values()
        told["problem"] = problem or told.get("problem")
        return Pages.of(request).show(request, template, status=400 if told["problem"] else 200, **told)

    return shown


async def _form(
    request: Request,
    shown: Callable[..., Response],
    carry_out: Callable[[Mapping[str, Any]], Response],
) -> Response:
    """Show a form, or do what it says; where it was not filled in as it asks, show it again with why."""
    pages = Pages.of(request)
    if not pages.settings.allow_changes:
        return await run_in_threadpool(
            pages.error, request, "this server shows, and changes nothing: start it with --allow-changes", 403
        )
    if request.method != "POST":  # the guard has looked where this one comes from, and at no other
        return await run_in_threadpool(shown)
    fields = await form_of(request)
    try:
        return await run_in_threadpool(carry_out, fields)
    except WrongArguments as refused:
        return await run_in_threadpool(shown, str(refused))


def _reason(fields: Mapping[str, Any]) -> str:
    why = str(fields.get("why", "")).strip()
    if not why:
        raise Refused("say why: the audit keeps it")
    return why


def _typed_count(fields: Mapping[str, Any]) -> int:
    count = _whole(fields.get("count"))
    if count is None:
        raise Refused("type the number of shards to confirm that all of them are meant")
    return count


def _check_count(fields: Mapping[str, Any], count: int) -> None:
    if _whole(fields.get("count")) != count:
        raise Refused(f"type {count} to confirm that all of these are meant")


def _rate(fields: Mapping[str, Any]) -> float | None:
    text = str(fields.get("rate", "")).strip()
    if not text:
        return None
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0 < rate <= _MAX_RATE:
        raise Refused(f"rate: expected records per second, more than 0, got {text[:20]!r}")
    return rate


def _whole(text: Any) -> int | None:
    try:
        return int(str(text).replace(",", "").strip())
    except ValueError:
        return None


def _back(request: Request, *parts: str) -> Response:
    params = request.path_params
    return RedirectResponse(address("a", params["app"], params["stream"], *parts), 303)


def _of_this_server(path: str) -> str:
    """Return the path, or / if it leads to another server."""
    return path if path.startswith("/") and not path.startswith(("//", "/\\")) else "/"
