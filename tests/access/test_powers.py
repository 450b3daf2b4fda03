"""The table of powers knows every kind, and rights are checked by it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

import msgspec
import pytest
from msgspec.inspect import DictType, ListType, Metadata, StrType, StructType, Type, UnionType, VarTupleType

from cp.access.powers import GRAVE, NAMED_BEFORE, NAMED_KINDS, NAMED_PARTS, POWERS, Grant, Harm, Part, Power
from cp.access.rights import (
    BESIDE_RESOURCES,
    BY_NAME,
    AccessRequest,
    AccessRight,
    Rights,
    Subjects,
    User,
    Verb,
)
from cp.policies import discover, kinds
from cp.resources.redaction import holds_secrets

KINDS: Final = kinds(discover())
WRITTEN: Final = {*KINDS, "DataplaneToken", "UserToken", "ZoneToken"}
ANN: Final = User("ann")
HOLDERS: Final = Subjects(frozenset({"ann"}))
PARTS: Final = [(power.kind, power.part) for power in POWERS if power.part is not None]


def right(*named: str, verbs: frozenset[Verb] = frozenset({Verb.WRITE})) -> AccessRight:
    return AccessRight(HOLDERS, verbs, frozenset({"a"}), frozenset(named) or None, place="f:1")


def may(kind: str, *rights: AccessRight, is_by_name: bool = False) -> bool:
    wanted = AccessRequest(Verb.WRITE, kind, "a", is_by_name=is_by_name)
    return Rights(Subjects(), rights).decision(ANN, wanted).allowed


@pytest.mark.parametrize("kind", sorted(WRITTEN))
def test_every_kind_has_its_power(kind: str) -> None:
    assert [power for power in POWERS if power.kind == kind and power.part is None], "add it to the table of powers"


def test_the_table_has_nothing_else() -> None:
    assert {power.kind for power in POWERS} == WRITTEN
    wholes = [power.kind for power in POWERS if power.part is None]
    assert len(wholes) == len(set(wholes))
    assert {"DataplaneToken", "UserToken", "ZoneToken"} <= BESIDE_RESOURCES.keys()


def test_the_gravest_powers_come_first() -> None:
    ranks = [list(Harm).index(power.harm) for power in POWERS]

    assert all(before <= after for before, after in pairwise(ranks))


@pytest.mark.parametrize("power", POWERS, ids=lambda power: f"{power.kind} {power.part and power.part.field}")
def test_no_grave_power_is_plain(power: Power) -> None:
    assert (power.harm in GRAVE) == (power.grant not in {Grant.PLAIN, Grant.CONTROL_PLANE})


@pytest.mark.parametrize("kind", sorted(WRITTEN))
def test_an_unnamed_right_covers_plain_kinds_alone(kind: str) -> None:
    is_named = kind in NAMED_KINDS

    assert may(kind, right()) is not is_named
    assert may(kind, right(kind))
    assert not may(kind, right("Other"))
    assert not may(kind, right(verbs=frozenset({Verb.READ})))
    assert not may(kind, right(), is_by_name=True)
    assert may(kind, right(kind), is_by_name=True)


@pytest.mark.parametrize("kind", sorted(WRITTEN))
def test_tolerance_covers_what_earlier_versions_covered(kind: str) -> None:
    rights = Rights(Subjects(), (right(),), tolerates_unnamed=True)
    decision = rights.decision(ANN, AccessRequest(Verb.WRITE, kind, "a"))

    assert decision.allowed is (kind not in NAMED_BEFORE)
    assert decision.is_tolerated is (kind in NAMED_KINDS - NAMED_BEFORE)
    assert not rights.decision(ANN, AccessRequest(Verb.WRITE, kind, "b")).allowed
    assert BY_NAME <= NAMED_BEFORE <= NAMED_KINDS


def fields(info: Type, path: str = "", seen: frozenset[Any] = frozenset()) -> Iterator[tuple[str, Type]]:
    """Yield all fields of a schema, as `Part` writes their paths."""
    for inner, step, name in inner_types(info):
        inner_path = f"{path}{step}".removeprefix(".")
        if name:
            yield inner_path, inner
        own = getattr(inner, "cls", None)
        if not isinstance(inner, StructType) or own not in seen:
            yield from fields(inner, inner_path, seen | {own})


def inner_types(info: Type) -> list[tuple[Type, str, bool]]:
    """List the types within a type, each with the step to it, and whether that is a place for a value."""
    if isinstance(info, Metadata):
        return [(info.type, "", False)]
    if isinstance(info, UnionType):
        return [(choice, "", False) for choice in info.types]
    if isinstance(info, ListType | VarTupleType):
        return [(info.item_type, "[]", True)]
    if isinstance(info, DictType):
        return [(info.value_type, ".*", True)]
    of_struct = info.fields if isinstance(info, StructType) else ()
    return [(field.type, f".{field.encode_name}", True) for field in of_struct]


def schema_fields(kind: str) -> dict[str, Type]:
    root = f"{KINDS[kind].root}." if KINDS[kind].root else ""
    schema: Any = KINDS[kind].schema
    return {root + field: info for field, info in fields(msgspec.inspect.type_info(schema))}


def stands_for(pattern: str, field: str) -> bool:
    """Return True if the path of a part means a field of a schema, whose free-form objects end in `.*`."""
    wanted, actual = pattern.split("."), field.split(".")
    free = len(wanted) > len(actual) and actual[-1] == "*"
    fits = all(_fits(one, other) for one, other in zip(wanted, actual, strict=False))
    return fits and (free or len(wanted) == len(actual))


def _fits(wanted: str, actual: str) -> bool:
    same_form = wanted.endswith("[]") == actual.endswith("[]")
    return actual in {"*", wanted} or (same_form and wanted.removesuffix("[]") == "*")


@pytest.mark.parametrize(("kind", "part"), PARTS, ids=lambda value: value if isinstance(value, str) else value.field)
def test_each_field_of_the_table_is_one_of_its_kind(kind: str, part: Part) -> None:
    assert any(stands_for(part.field, field) for field in schema_fields(kind)), part.field


HTTP_PATHS: Final = (
    *("matches[].path", "http.path", "prometheus.path", "cookie.path", "requestRedirect.path", "urlRewrite.path"),
    *("redirect.path", "modify.path", "match.path", "applications[].path", "endpoint.path", "endpoints[].path"),
    *("spiffeID.path", "endpoints[].inboundPath", "hashPolicies[].cookie.path", "jsonPatches[].path"),
)
"""Fields named `path` that are no files."""


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_each_field_for_a_file_is_in_the_table(kind: str) -> None:
    """Envoy and the control plane open what they name. A new field is added to the table, or to the list above."""
    names = [field for field, info in schema_fields(kind).items() if _is_text(info) and _names_file(field)]
    parts = [part.field for owner, part in PARTS if owner == kind]
    tls = {"MeshExternalService", "ExternalService", "MeshGateway"}
    wholes = {field: (field, field.removesuffix(".path")) for field in names}
    left = [field for field in names if not any(stands_for(part, whole) for part in parts for whole in wholes[field])]

    assert not [field for field in left if not (kind in tls and field.endswith(".file"))]


def _is_text(info: Type) -> bool:
    return isinstance(info, StrType) or (isinstance(info, UnionType) and any(map(_is_text, info.types)))


def _names_file(field: str) -> bool:
    is_path = field.lower().endswith((".path", "logpath", ".file", ".filename"))
    return is_path and not field.endswith(HTTP_PATHS)


CREDENTIALS: Final = {
    *(
        "HostnameGenerator",
        "MeshGatewayRoute",
        "MeshHTTPRoute",
        "MeshMetric",
        "MeshRateLimit",
        "MeshRetry",
        "MeshTrace",
    ),
    *("RateLimit", "TrafficRoute"),
}
"""Kinds whose secrets are values of headers and parts of URLs, which their writer knows and gives to calls."""


@pytest.mark.parametrize("kind", [kind for kind in KINDS if holds_secrets(KINDS[kind]) and kind not in CREDENTIALS])
def test_each_kind_with_secrets_takes_more_than_a_plain_right(kind: str) -> None:
    assert [power for power in POWERS if power.kind == kind and power.grant is not Grant.PLAIN]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_each_field_that_names_a_secret_takes_the_right_to_secrets(kind: str) -> None:
    names = [field for field, info in schema_fields(kind).items() if _is_text(info)]
    granted = {
        grant: [p.part.field for p in POWERS if p.kind == kind and p.part and p.grant is grant] for grant in Grant
    }
    for field in names:
        if field.endswith((".secret", ".secretRef.name")):
            assert any(stands_for(part, field) for part in granted[Grant.SECRETS]), field
        if kind in {"Mesh", "MeshIdentity"} and field.endswith((".file", ".file.path", ".envVar.name")):
            assert any(stands_for(part, field) for part in granted[Grant.ADMINISTRATOR]), field


REVIEWED: Final = {"skipCreatingInitialPolicies", "meshServices", "tracing", "metrics"}
"""The fields of a Mesh without a power of their own."""


def test_each_section_of_a_mesh_was_judged() -> None:
    sections = {field.partition(".")[0].removesuffix("[]") for field in schema_fields("Mesh")}

    assert sections == REVIEWED | {part.field.partition(".")[0] for kind, part in PARTS if kind == "Mesh"}


MTLS: Final = {"mtls": {"enabledBackend": "a", "backends": [{"name": "a"}]}}
CHANGED: Final = {"mtls": {**MTLS["mtls"], "skipValidation": True}}
TWICE: Final = {"to": [{"default": {"backends": [{"file": {"path": "/a"}}, {"tcp": {"address": "x:1"}}]}}]}
OTHER_FORMAT: Final = {"to": [{"default": {"backends": [{"file": {"path": "/a", "format": {"plain": "#"}}}]}}]}
TO_STREAM: Final = {"to": [{"default": {"backends": [{"file": {"path": "/dev/stdout", "format": {"plain": "#"}}}]}}]}


def to_collector(address: str) -> dict[str, Any]:
    backend = {"type": "tcp", "conf": {"address": address}, "format": "%ENVIRONMENT(A)%"}
    return {"logging": {"backends": [backend]}}


@pytest.mark.parametrize(
    ("kind", "field", "before", "after", "is_taken"),
    [
        ("Mesh", "mtls", {}, MTLS, True),
        ("Mesh", "mtls", MTLS, CHANGED, True),
        ("Mesh", "mtls", MTLS, {}, True),
        ("Mesh", "mtls", MTLS, None, True),
        ("Mesh", "mtls", None, MTLS, True),
        ("Mesh", "mtls", MTLS, {**MTLS, "routing": {}}, False),
        ("Mesh", "mtls", {"mtls": None}, {"mtls": {}}, False),
        ("Mesh", "networking.outbound.passthrough", {"networking": {"outbound": {"passthrough": False}}}, {}, True),
        ("Mesh", "policyEngine", {"policyEngine": "Legacy"}, {"policyEngine": "TargetRef"}, True),
        ("Mesh", "policyEngine", None, {"policyEngine": "Legacy"}, False),
        ("Mesh", "policyEngine", {"policyEngine": "Legacy"}, None, False),
        ("MeshAccessLog", "spec.*[].default.backends[].file", None, {"spec": TWICE}, True),
        ("MeshAccessLog", "spec.*[].default.backends[].file", {"spec": TWICE}, {"spec": TWICE}, False),
        ("MeshAccessLog", "spec.*[].default.backends[].file", {"spec": TWICE}, None, False),
        ("MeshAccessLog", "spec.*[].default.backends[].file", None, {"spec": {"to": 5, "from": [3]}}, False),
        ("MeshAccessLog", "spec.*[].default.backends[].file", {"spec": TWICE}, {"spec": OTHER_FORMAT}, True),
        ("MeshAccessLog", "spec.*[].default.backends[].file", None, {"spec": TO_STREAM}, False),
        ("Mesh", "logging.backends[]", {}, {"logging": {"backends": [{"format": "%ENVIRONMENT(A)%"}]}}, True),
        ("Mesh", "logging.backends[]", to_collector("a:1"), to_collector("b:1"), True),
        ("Mesh", "logging.backends[]", {}, {"logging": {"backends": [{"conf": {"path": "/a"}}]}}, True),
        ("Mesh", "logging.backends[]", {}, {"logging": {"backends": [{"format": "%REQ(A)%"}]}}, False),
        ("HealthCheck", "conf.eventLogPath", None, {"conf": {"eventLogPath": "/dev/stderr"}}, False),
    ],
)
def test_a_power_is_taken_by_what_changes(
    kind: str, field: str, before: dict[str, Any] | None, after: dict[str, Any] | None, *, is_taken: bool
) -> None:
    parts = [power.part for power in NAMED_PARTS[kind] if power.part is not None and power.part.field == field]

    assert any(part.is_taken(before, after) for part in parts) is is_taken
    assert parts
