"""Screens that change nothing: one function for each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from kinesis_spout.model.record import LetterOutcome
from kinesis_spout.operations.dead_letters import Choice, LetterSummary, find_letter, place_of
from kinesis_spout.operations.watch.sight import ShardSight, Sight, most_urgent_first
from kinesis_spout.web import drawing
from kinesis_spout.web.pages import Pages
from kinesis_spout.web.wording import Rendering, address, shown

T = TypeVar("T")

_SHARDS_A_PAGE: Final = 200
_LETTERS_A_PAGE: Final = 50
_MAX_RECORDS: Final = 100

_SHARD_KEYS: Final[dict[str, Callable[[ShardSight], Any]]] = {
    "urgent": lambda each: each.state.urgency,  # parents before children
    "shard": lambda each: each.view.shard_id,
    "state": lambda each: each.state.value,
    "owner": lambda each: each.view.owner or "",
    "lag": lambda each: each.lag_millis or 0,
    "oldest": lambda each: each.oldest_unread_millis or 0,
    "holes": lambda each: each.holes,
    "retries": lambda each: each.retries,
}
_LETTER_KEYS: Final[dict[str, Callable[[LetterSummary], Any]]] = {
    "died": lambda each: each.letter.died_at,
    "kind": lambda each: each.kind,
    "reason": lambda each: each.letter.reason,
    "shard": lambda each: each.letter.shard_id,
    "attempts": lambda each: each.letter.attempts,
    "size": lambda each: each.size_bytes,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet(Generic[T]):
    """One page of a list, as the address says: sorted, from the first to the last of them."""

    rows: Sequence[T]
    total: int
    number: int
    pages: int
    sort: str

    @classmethod
    def of(
        cls,
        request: Request,
        rows: Sequence[T],
        keys: dict[str, Callable[[T], Any]],
        default: str,
        length: int,
    ) -> "Sheet[T]":
        sort = request.query_params.get("sort", default)
        key = keys.get(sort.removeprefix("-"))
        if key is None:
            sort, key = default, keys.get(default.removeprefix("-"))
        if key is not None:
            rows = sorted(rows, key=key, reverse=sort.startswith("-"))
        pages = max(1, -(-len(rows) // length))
        number = min(pages, max(1, whole(request.query_params.get("page"), 1)))
        first = (number - 1) * length
        return cls(rows=rows[first : first + length], total=len(rows), number=number, pages=pages, sort=sort)


def applications(request: Request) -> Response:
    pages = Pages.of(request)
    if pages.watched.only is not None:
        return RedirectResponse(address("a", *pages.watched.only), 303)
    views = pages.watched.overview()
    read_at = min((each.sight.at for each in views if each.sight), default=None)
    return pages.show(request, "applications.html", applications=views, read_at=read_at)


def application(request: Request) -> Response:
    pages = Pages.of(request)
    observation = pages.observation(request)
    sight = observation.look()
    config = observation.config
    shards = most_urgent_first(sight.shards)
    wanted, text = request.query_params.get("state"), request.query_params.get("find", "").strip()
    rows = [
        each
        for each in shards
        if wanted in (None, each.state.value)
        and (not text or text in each.view.shard_id or text in (each.view.owner or ""))
    ]
    attention = sorted(
        (each for each in shards if each.reason is not None),
        key=lambda each: (each.state.urgency, -(each.lag_millis or 0)),
    )
    return pages.show(
        request,
        "application.html",
        sight=sight,
        figures=_figures(sight),
        strip=drawing.strip(shards, address("a", config.app, config.stream_name, "shards") + "/"),
        sheet=Sheet.of(request, rows, _SHARD_KEYS, "urgent", _SHARDS_A_PAGE),
        attention=attention,
    )


def _figures(sight: Sight) -> dict[str, Any]:
    """Over all shards and members; None where nobody says."""
    live = [each for each in sight.live.values() if each.problem is None]

    def total(name: str) -> float | None:
        said = [value for each in live if (value := getattr(each, name)) is not None]
        return sum(said) if said else None

    unread = [each.oldest_unread_millis for each in sight.shards if each.oldest_unread_millis is not None]
    return {
        "oldest": max(unread) if unread else None,
        "holes": sum(each.holes for each in sight.shards),
        "retries": len(sight.retrying),
        "rate": total("records_per_second"),
        "in_flight": total("in_flight"),
    }


def shard(request: Request) -> Response:
    pages = Pages.of(request)
    observation = pages.observation(request)
    sight = observation.look()
    seen = sight.shard(request.path_params["shard_id"])
    checkpoint = seen.view.checkpoint
    records = None
    count = min(_MAX_RECORDS, whole(request.query_params.get("records"), 0))
    if count > 0 and pages.settings.show_data:
        records = [
            (each, shown(each.data, None, pages.settings.masks))
            for each in observation.next_records(seen.view.shard_id, count)
        ]
    return pages.show(
        request,
        "shard.html",
        sight=sight,
        seen=seen,
        holes=None if checkpoint is None else drawing.hole_map(checkpoint),
        children=[each.view for each in sight.shards if seen.view.shard_id in each.view.parents],
        records=records,
    )


def letters(request: Request) -> Response:
    pages = Pages.of(request)
    observation, choice = pages.observation(request), choice_of(request)
    view = observation.letters(choice.outcome)
    chosen = list(view.chosen(choice))
    return pages.show(
        request,
        "letters.html",
        view=view,
        choice=choice,
        place=place_of(observation.config),
        sheet=Sheet.of(request, chosen, _LETTER_KEYS, "-died", _LETTERS_A_PAGE),
    )


def letter(request: Request) -> Response:
    pages = Pages.of(request)
    observation = pages.observation(request)
    message_id, outcome = request.query_params.get("id", ""), choice_of(request).outcome
    found = find_letter(pages.watched.world, observation.config, message_id, outcome)
    form = request.query_params.get("as")
    data = None
    if pages.settings.show_data:
        data = shown(found.data, Rendering(form) if form in set(Rendering) else None, pages.settings.masks)
    return pages.show(request, "letter.html", letter=found, outcome=outcome, data=data)


def redrives(request: Request) -> Response:
    pages = Pages.of(request)
    config = pages.observation(request).config
    return pages.show(request, "redrives.html", redrives=pages.watched.redrives.of(config))


def redrive(request: Request) -> Response:
    pages = Pages.of(request)
    number = request.path_params["number"]
    found = pages.watched.redrives.find(pages.observation(request).config, number)
    return pages.show(request, "redrive_progress.html", number=number, redrive=found)


def topology(request: Request) -> Response:
    pages = Pages.of(request)
    sight = pages.observation(request).look()
    members = [(name, each) for name, each in sight.live.items() if each.components]
    return pages.show(request, "topology.html", sight=sight, members=members)


def audit(request: Request) -> Response:
    pages = Pages.of(request)
    return pages.show(request, "audit.html", entries=pages.observation(request).audit())


def choice_of(request: Request) -> Choice:
    """The dead letters that an address chooses."""
    query = request.query_params
    return Choice(
        reason=query.get("reason") or None,
        shard_id=query.get("shard") or None,
        error=query.get("error") or None,
        kind=query.get("kind") or None,
        message_ids=frozenset(query.getlist("id")),
        outcome=LetterOutcome.DISMISSED if query.get("state") == LetterOutcome.DISMISSED else None,
    )


def whole(text: str | None, default: int) -> int:
    try:
        return int((text or str(default)).replace(",", ""))
    except ValueError:
        return default
