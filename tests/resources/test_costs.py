"""No document costs more than its size times a constant, whatever is in it; where it would, a limit is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from cp.api.body import BodyOrigin, _reading
from cp.api.errors import ApiError
from cp.insight.explain.query import AmbiguousCall, parse_call
from cp.model.document import Document
from cp.model.duration import Duration
from cp.model.source import key_of, read_documents
from cp.policies.mesh_metric.patterns import NotAPattern, patterns
from cp.policies.mesh_proxy_patch.json_patch import DoesNotApply, patched
from cp.policies.mesh_proxy_patch.schema import JsonPatch
from cp.resources.checks import number
from cp.resources.gateway import GatewayListener, _conflicts
from cp.resources.hostname_generator import Template, render
from cp.resources.kinds import Kind
from cp.resources.parse import ParsedDocument, parse
from cp.resources.schema import MOST_FAULTS
from cp.rules.partition import parts
from generators.envoy.log_formats import envoy_format
from tests.growth import MOST, growth
from tests.resources.reading import every_kind

pytestmark = pytest.mark.timeout(60)


def read(data: dict[str, Any]) -> ParsedDocument:
    return parse(Document(key_of(data), data), every_kind())


def policy(kind: str, **spec: Any) -> dict[str, Any]:
    return {"type": kind, "mesh": "default", "name": "x", "spec": spec}


# Texts that look for what is not there


def call(text: str) -> None:
    with pytest.raises(AmbiguousCall):
        parse_call(text)


def template(text: str) -> None:
    try:
        render(text, {".Name": "x"})
    except Template:
        return


TEXTS: dict[str, tuple[Callable[[int], str], Callable[[str], object]]] = {
    "log format with brackets that stay open": (lambda n: "%A(" * n, lambda text: envoy_format(text, {})),
    "log format with one end for all brackets": (lambda n: "%A(" * n + ")", lambda text: envoy_format(text, {})),
    "host name with an action that stays open": (lambda n: "{{" + " " * n, template),
    "host name with actions within each other": (lambda n: "{{ " * n, template),
    "host name of many actions": (lambda n: "{{-  .Name -}}" * n, template),
    "call with spaces within": (lambda n: "G1" + " " * n + "x", call),
    "call with letters and spaces": (lambda n: "G " * n + "x", call),
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_is_read_in_one_pass(name: str) -> None:
    make, work = TEXTS[name]

    assert growth(make, work, 3000) < MOST


# Documents with very many faults


def unknown(count: int) -> dict[str, Any]:
    return policy("MeshTimeout", **{f"field{n}": 1 for n in range(count)})


def faulty(count: int) -> dict[str, Any]:
    """Half of the faults are the schema's, half the validator's."""
    wrong = [{"targetRef": {"kind": "Mesh"}, "default": {"connectionTimeout": 1}} for _ in range(count)]
    return policy("MeshTimeout", to=[*wrong, *({"targetRef": {"kind": "Nothing"}} for _ in range(count))])


def labelled(count: int) -> dict[str, Any]:
    return policy("MeshTimeout") | {"labels": {f"label{n}": n for n in range(count)}}


def nulls(count: int) -> dict[str, Any]:
    conf = {"http": {f"field{n}": None for n in range(count)}}
    return policy("MeshTimeout", to=[{"targetRef": {"kind": "Mesh"}, "default": conf}])


@pytest.mark.parametrize("make", [unknown, faulty, labelled, nulls])
def test_of_very_many_faults_some_are_told_and_that_there_are_more(make: Callable[[int], dict[str, Any]]) -> None:
    found = read(make(3000))

    assert len(found.violations) == MOST_FAULTS + 1
    assert (
        str(found.violations[-1]) == f"has more than the {MOST_FAULTS} faults that are told at once; mend these first"
    )
    assert growth(make, read, 3000) < MOST


def test_a_fault_quotes_no_more_of_a_long_text_than_tells_which_it_is() -> None:
    found = read(policy("MeshTimeout", to=[{"targetRef": {"kind": "x" * 1_000_000}, "default": {}}] * 100))

    assert sum(len(str(finding)) for finding in found.findings()) < 1_000_000


def test_a_name_that_none_can_have_is_told_once() -> None:
    found = read(faulty(10) | {"name": "x" * 100_000})

    assert [str(one) for one in found.violations] == ["name: is 100000 characters long; 253 are what it may have"]


def listeners(count: int) -> list[GatewayListener]:
    return [GatewayListener(f"h{n}.example.com", 8080, "HTTP") for n in range(count)]


def test_listeners_of_one_port_are_compared_in_one_pass() -> None:
    assert growth(listeners, lambda each: list(_conflicts(each)), 1200) < MOST


# Numbers


@pytest.mark.parametrize("text", ["0x" + "f" * 5000, "0o" + "7" * 6000, "9" * 5000, "1e999", "-1e999"])
def test_a_number_beyond_all_is_a_fault_of_the_document(text: str) -> None:
    reading = read_documents(f"type: MeshTimeout\nname: x\nspec: {{to: [{{default: {{idleTimeout: {text}}}}}]}}\n")

    assert "is larger than any number" in str(reading.findings[0])


@pytest.mark.parametrize("text", ["9" * 20, "-" + "9" * 5000, "1e999", "-1e999", "1" * 400 + ".5"])
def test_a_number_beyond_all_in_json_is_refused(text: str) -> None:
    body = f'{{"type": "HostnameGenerator", "name": "x", "spec": {{"extension": {{"config": {text}}}}}}}'

    with pytest.raises(ApiError):
        _reading(body, "application/json", BodyOrigin())


def test_json_nests_no_deeper_than_yaml() -> None:
    with pytest.raises(ApiError, match="nested more than 64 levels deep"):
        _reading('{"type": "Mesh", "name": "x", "y": ' + "[" * 70 + "]" * 70 + "}", "application/json", BodyOrigin())


def test_aliases_nest_no_deeper_than_what_is_written_out() -> None:
    chain = "".join(f"a{n}: &a{n} {'[' * 40}{f'*a{n - 1}' if n else 1}{']' * 40}\n" for n in range(5))

    assert "nested more than 64 levels deep" in str(read_documents(chain).findings[0])


def test_aliases_of_a_long_text_count_with_its_length() -> None:
    text = f"a: &a {'x' * 100_000}\nb: [{'*a, ' * 200}]\n"

    assert "aliases stand for more than" in str(read_documents(text).findings[0])


def test_a_name_that_stands_in_one_object_twice_is_found_in_one_pass() -> None:
    def body(count: int) -> str:
        return json.dumps({f"k{n}": 1 for n in range(count)})[:-1] + ', "k1": 2}'

    def work(text: str) -> None:
        with pytest.raises(ApiError, match="stands in one object twice"):
            _reading(text, "application/json", BodyOrigin())

    assert growth(body, work, 5000) < MOST


@pytest.mark.parametrize("text", ["1" * 101, "1e999999999", "1e-999999999", "9" * 5000])
def test_a_number_of_very_many_digits_is_none(text: str) -> None:
    assert number(text) is None


@pytest.mark.parametrize("text", ["9" * 5000 + "s", "1" + "0" * 100 + "ms"])
def test_a_duration_of_very_many_digits_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration: it has"):
        Duration.parse(text)


def test_every_whole_number_of_every_schema_is_bounded() -> None:
    unbounded = [
        f"{kind.name}{path}"
        for kind in every_kind().values()
        for path, number in integers(msgspec.inspect.type_info(kind.schema), "", frozenset())
        if number.ge is None or number.le is None
    ]

    assert unbounded == []


def integers(kind: Any, path: str, seen: frozenset[type]) -> list[tuple[str, Any]]:
    inspect = msgspec.inspect
    within: list[tuple[str, Any]] = []
    match kind:
        case inspect.IntType():
            return [(path, kind)]
        case inspect.Metadata():
            within = [(path, kind.type)]
        case inspect.UnionType():
            within = [(path, choice) for choice in kind.types]
        case inspect.ListType() | inspect.VarTupleType():
            within = [(f"{path}[]", kind.item_type)]
        case inspect.DictType():
            within = [(f"{path}{{}}", kind.value_type)]
        case inspect.StructType() if kind.cls not in seen:
            seen |= {kind.cls}
            within = [(f"{path}.{field.encode_name}", field.type) for field in kind.fields]
    return [found for place, inner in within for found in integers(inner, place, seen)]


@pytest.mark.parametrize("weights", [(2**32, 1), (2**32 - 1, 1), (2**31, 2**31)])
@pytest.mark.parametrize("kind", ["MeshHTTPRoute", "MeshTCPRoute"])
def test_weights_that_envoy_cannot_hold_are_refused(kind: str, weights: tuple[int, int]) -> None:
    backends = [{"kind": "MeshService", "name": "b", "port": 80, "weight": weight} for weight in weights]
    rule: dict[str, Any] = {"default": {"backendRefs": backends}}
    if kind == "MeshHTTPRoute":
        rule["matches"] = [{"path": {"type": "PathPrefix", "value": "/"}}]

    found = read(policy(kind, to=[{"targetRef": {"kind": "MeshService", "name": "b"}, "rules": [rule]}]))

    assert any("4294967295" in str(violation) for violation in found.violations)


# What a small document would make large


def test_copies_within_each_other_are_no_more_than_can_be_held() -> None:
    copies = [JsonPatch(op="copy", from_="", path=f"/x{n}") for n in range(40)]

    with pytest.raises(DoesNotApply, match=r"more than 10 times as much|nested more than 64 levels deep"):
        patched({"name": "x", "list": list(range(100))}, copies)


def test_copies_side_by_side_are_no_more_than_can_be_held() -> None:
    copies = [JsonPatch(op="copy", from_="/list", path=f"/x{n}") for n in range(2000)]

    with pytest.raises(DoesNotApply, match="more than 10 times as much"):
        patched({"list": list(range(100))}, copies)


@pytest.mark.parametrize("path", ["/list/" + "9" * 5000, "/list" + "/0" * 100_000])
def test_a_place_that_is_not_there_is_not_there(path: str) -> None:
    with pytest.raises(DoesNotApply):
        patched({"list": [1]}, [JsonPatch(op="replace", path=path, value=1)])


@pytest.mark.parametrize("expression", ["(" * 300 + "a" + ")" * 300, "(a|b)" * 1000, "(" + "a|" * 2000 + "b)" * 2])
def test_an_expression_that_would_be_very_many_patterns_is_none(expression: str) -> None:
    with pytest.raises(NotAPattern):
        patterns(expression)


@pytest.mark.parametrize(
    "tags",
    [
        [{(f"key{n}", "v")} for n in range(3000)],
        [{(f"key{n % 40}", f"v{n}")} for n in range(1000)],
        [{(f"key{n}", f"v{n % 2}") for n in range(m, m + 20)} for m in range(300)],
    ],
    ids=["a key each", "forty keys", "keys that overlap"],
)
def test_more_sorts_of_clients_than_can_be_told_apart_are_not_told_apart(tags: list[set[tuple[str, str]]]) -> None:
    assert parts([frozenset(one) for one in tags], negations=True) is None


def test_an_item_may_ask_for_more_tags_than_a_function_can_call_itself() -> None:
    found = parts([frozenset((f"tag{n}", "v") for n in range(900))], negations=True)

    assert found is not None
    assert len(found) == 901


# What is wrong with us


def test_a_fault_of_a_validator_is_a_finding_of_the_document() -> None:
    def failing(_spec: Any, _meta: Any) -> Any:
        raise RecursionError("maximum recursion depth exceeded")

    kinds = dict(every_kind())
    timeout = kinds["MeshTimeout"]
    kinds["MeshTimeout"] = Kind(timeout.name, timeout.short, timeout.plural, timeout.schema, failing)
    data = policy("MeshTimeout", to=[])

    found = parse(Document(key_of(data), data), kinds)  # type: ignore[arg-type]

    assert found.resource is None
    (finding,) = found.findings()
    assert "a fault of koguma itself: RecursionError in test_costs.py" in finding.message
