"""Every operation of Kinesis has been judged, and every member of those that are called.

A newer botocore can know more than ``kinesis_api.toml``: then the first tests here name what nobody has judged. An
older one knows less, which is fine. To bring the page up to date, in the repository's folder:
``python -m tests.unit.kinesis.test_kinesis_api``.
"""

import copy
import re
import tomllib
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.model import ServiceModel

from kinesis_spout.kinesis.calls import ERRORS_BY_CODE, INVALID_ARGUMENT_BY_OPERATION
from tests.support.made_tables import with_tables

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/reference/kinesis-api.md"
MADE_BY = "tests/unit/kinesis/test_kinesis_api.py"
FILE = Path(__file__).with_name("kinesis_api.toml")
JUDGED: dict[str, Any] = tomllib.loads(FILE.read_text())
USED, NO_USE, NOT_YET = "used", "of no use here", "not yet"
CALLED = {name for name, (judgement, _) in JUDGED["operations"].items() if judgement == USED}
ASIDE = {"InvalidArgumentException", "DryRunOperationException"}
"""Errors that are no row of the table: what the first means depends on the operation; the other is `doctor`'s."""


def service() -> ServiceModel:
    return botocore.session.Session().get_service_model("kinesis")


@pytest.fixture(scope="module", name="service")
def _service() -> ServiceModel:
    return service()


def members_of(shape: Any, found: dict[str, list[str]]) -> None:
    """Add the members of a structure, and of those within."""
    if shape is None:
        return
    if shape.type_name == "list":
        members_of(shape.member, found)
    elif shape.type_name == "structure" and shape.name not in found and not shape.metadata.get("exception"):
        found[shape.name] = list(shape.members)
        for member in shape.members.values():
            members_of(member, found)


def members_called(model: ServiceModel) -> dict[str, list[str]]:
    """By structure, what the operations that we call send and receive; errors aside."""
    found: dict[str, list[str]] = {}
    for name in sorted(CALLED & set(model.operation_names)):
        operation = model.operation_model(name)
        members_of(operation.input_shape, found)
        members_of(operation.output_shape, found)
    return found


def method_of(operation: str) -> str:
    return re.sub("(?<!^)([A-Z])", r"_\1", operation).lower()


def judged_members(structure: str) -> list[str]:
    by_judgement = JUDGED["members"].get(structure, {})
    return [member for members in by_judgement.values() for member in members]


def unjudged(model: ServiceModel) -> list[str]:
    operations = [name for name in model.operation_names if name not in JUDGED["operations"]]
    members = [
        f"{structure}.{member}"
        for structure, names in members_called(model).items()
        for member in names
        if member not in judged_members(structure)
    ]
    return operations + members


def unforeseen_errors(model: ServiceModel) -> set[str]:
    """The errors of operations that we call which no table translates."""
    errors: list[Any] = []  # whose stubs do not know that they have a code
    for name in CALLED & set(model.operation_names):
        errors += model.operation_model(name).error_shapes
    return {error.error_code for error in errors} - ERRORS_BY_CODE.keys() - ASIDE


def test_nothing_of_botocores_model_is_unjudged(service: ServiceModel) -> None:
    assert unjudged(service) == [], f"judge these in {FILE.name}: used, of no use here, or not yet"


def test_every_error_of_what_is_called_has_its_reaction(service: ServiceModel) -> None:
    assert unforeseen_errors(service) == set()
    assert INVALID_ARGUMENT_BY_OPERATION.keys() <= CALLED


def test_what_aws_adds_is_found() -> None:
    newer = copy.deepcopy(service()._service_description)  # type: ignore[attr-defined]
    shapes = newer["shapes"]
    newer["operations"]["Teleport"] = {**newer["operations"]["ListShards"], "name": "Teleport"}
    shapes["ListShardsInput"]["members"]["Hue"] = {"shape": "StreamName"}
    shapes["HashKeyRange"]["members"]["Middle"] = {"shape": "HashKey"}
    shapes["MovedException"] = {"type": "structure", "members": {}, "exception": True}
    newer["operations"]["GetRecords"]["errors"].append({"shape": "MovedException"})
    model = ServiceModel(newer, "kinesis")

    assert unjudged(model) == ["Teleport", "HashKeyRange.Middle", "ListShardsInput.Hue"]
    assert unforeseen_errors(model) == {"MovedException"}


def test_what_is_said_to_be_used_is_and_nothing_else_is_called() -> None:
    sources = [path for kind in ("*.py", "*.c") for path in (ROOT / "kinesis_spout").rglob(kind)]
    text = "\n".join(path.read_text() for path in sources)
    called = {name for name in JUDGED["operations"] if re.search(rf"client\.{method_of(name)}\b", text)}
    used = {member for judgements in JUDGED["members"].values() for member in judgements.get(USED, ())}

    assert called == CALLED
    assert {member for member in used if not re.search(rf"\b({member}|{method_of(member)})\b", text)} == set()


def test_each_judgement_is_one_of_three_and_has_a_reason() -> None:
    assert {judgement for judgement, _ in JUDGED["operations"].values()} <= {USED, NO_USE, NOT_YET}
    assert all(reason for _, reason in JUDGED["operations"].values())
    for structure, judgements in JUDGED["members"].items():
        assert judgements.keys() <= {USED, NO_USE, NOT_YET}, structure
        members = judged_members(structure)
        assert len(set(members)) == len(members), f"{structure} judges a member twice"


def rows_of_operations() -> Iterator[str]:
    """A row for each operation that is called, and one for all that are not called for the same reason."""
    for name, (judgement, reason) in sorted(JUDGED["operations"].items()):
        if judgement == USED:
            yield f"| `{name}` | {judgement} | {reason} |"
    others = sorted((*told, name) for name, told in JUDGED["operations"].items() if told[0] != USED)
    for (judgement, reason), together in groupby(others, key=lambda each: each[:2]):
        yield f"| {', '.join(f'`{name}`' for *_, name in together)} | {judgement} | {reason} |"


def tables() -> dict[str, str]:
    return {"operations": "\n".join(("| operation | | why |\n| --- | --- | --- |", *rows_of_operations()))}


def test_the_page_says_what_was_judged() -> None:
    assert PAGE.read_text() == with_tables(PAGE, tables(), MADE_BY), f"run python -m {__name__}"


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE, tables(), MADE_BY))
