"""What Koguma answers to each kind of question."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from cp import policies
from cp.insight.inspect import inspect_policies, inspect_rules
from cp.model.names import Identity, Key
from cp.model.source import read_documents
from cp.model.yaml import parse_all
from cp.resources.kinds import Kinds
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.rules import TagCondition, fits
from cp.rules.merging import Layer, MergeOptions, Origin, merge_groups
from tests.conformance.validate import validate

Request = Mapping[str, Any]


def respond(line: str) -> dict[str, Any] | None:
    """The answer to one line; None for a line that asks nothing."""
    try:
        request = json.loads(line)
    except ValueError:
        return None
    if not isinstance(request, dict) or "id" not in request:
        return None
    try:
        return {"id": request["id"], "result": ANSWERS[request["op"]](request)}
    except Exception as error:  # noqa: BLE001  # the protocol wants every error as an answer
        return {"id": request["id"], "error": f"{type(error).__name__}: {error}"}


@cache
def kinds() -> Kinds:
    """Every kind there is."""
    return policies.kinds(policies.discover())


def world_of(text: str) -> World:
    """A World of all documents in a text. Anything wrong with one is an error here."""
    reading = read_documents(text)
    world = World.of(reading.documents, kinds())
    if wrong := [str(found) for found in (*reading.findings, *world.findings) if found.severity == "error"]:
        raise ValueError("; ".join(wrong))
    return world


def _rules(request: Request) -> Any:
    world = world_of(request["input"])
    return inspect_rules(world, _dataplane(world, request))


def _policies(request: Request) -> Any:
    world = world_of(request["input"])
    return inspect_policies(world, _dataplane(world, request))


def _dataplane(world: World, request: Request) -> Resource:
    found = world.get(Key("Dataplane", request["mesh"], request["dataplane"]))
    if found is None:
        raise ValueError(f"there is no Dataplane {request['dataplane']} in mesh {request['mesh']}")
    return found


def _merge(request: Request) -> Any:
    data = _plain(request)
    options = data.get("options") or {}
    recipe = MergeOptions(options.get("mergeByKey") or {}, options.get("groupBy"))
    origin = Origin(Key("", "", ""), Identity("", "", ""), "")
    merged = merge_groups([Layer(conf, origin) for conf in data["confs"]], recipe)
    return {"merged": [one.value for one in merged]}


def _eval(request: Request) -> Any:
    data = _plain(request)
    found = (rule["conf"] for rule in data["rules"] if fits(_matchers(rule), data["element"]))
    return {"conf": next(found, None)}


def _matchers(rule: Mapping[str, Any]) -> list[TagCondition]:
    return [TagCondition(one["key"], one["value"], bool(one.get("not"))) for one in rule["matchers"]]


def _plain(request: Request) -> Any:
    return next(parse_all(request["input"])).data


def _validate(request: Request) -> Any:
    return validate(request["input"])


ANSWERS: Mapping[str, Callable[[Request], Any]] = {
    "rules": _rules,
    "policies": _policies,
    "validate": _validate,
    "merge": _merge,
    "eval": _eval,
}
