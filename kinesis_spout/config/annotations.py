"""Reads what a setting's annotation says: whether it may be None, what is allowed, what it means."""

import types
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from msgspec import Meta

_TYPE_NAMES: Final = {str: "text", bool: "true or false", int: "int", float: "float"}


def description(annotation: Any) -> str:
    """Say what the setting means; empty where nothing is written."""
    return _metas(annotation)[-1].description or ""


def is_optional(annotation: Any) -> bool:
    """Say whether None is allowed."""
    bare = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
    return type(None) in get_args(bare)


def allowed_text(annotation: Any) -> str:
    """Say what is allowed: "int >= 0, or none"."""
    if get_origin(annotation) is Annotated:
        bare, metas = get_args(annotation)[0], _metas(annotation)
        title = next((meta.title for meta in metas if meta.title), None)
        return title or allowed_text(bare) + "".join(_range_text(meta) for meta in metas)
    if get_origin(annotation) in (Union, types.UnionType):
        return allowed_text(get_args(annotation)[0]) + ", or none"
    if get_origin(annotation) is Literal:
        return "one of " + ", ".join(get_args(annotation))
    return _TYPE_NAMES[annotation]


def _metas(annotation: Any) -> list[Meta]:
    return [meta for meta in get_args(annotation)[1:] if isinstance(meta, Meta)]


def _range_text(meta: Meta) -> str:
    bounds = ((">=", meta.ge), (">", meta.gt), ("<=", meta.le))
    text = " and ".join(f"{sign} {number_text(bound)}" for sign, bound in bounds if bound is not None)
    return f" {text}" if text else ""


def number_text(number: Any) -> str:
    """Give a number as people read it: 10,000."""
    return f"{number:,}" if isinstance(number, int) else f"{number}"
