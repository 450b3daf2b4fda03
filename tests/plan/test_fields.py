"""The fields that differ between two messages: no more than differs is told, and all of it."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cp.insight.fields import ABSENT, ChangedField, differing_fields
from tests.plan.applied_fields import applied, in_any_order

NAMES = st.sampled_from("abcdef")
WORDS = st.sampled_from(["", "x", 'a"b\\c', "d.e[0]"])


def listed(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Lists of elements each of which has another name."""
    element = st.fixed_dictionaries({"name": NAMES}, optional=fields)
    return st.lists(element, max_size=5, unique_by=lambda element: element["name"])


ROUTES = listed(timeout=WORDS, retry=st.fixed_dictionaries({}, optional={"on": WORDS, "codes": st.lists(WORDS)}))
LOGS = st.lists(
    st.fixed_dictionaries({"name": st.just("file"), "typedConfig": st.fixed_dictionaries({"path": NAMES})}, optional={})
)
MESSAGES = st.fixed_dictionaries(
    {},
    optional={
        "virtualHosts": listed(domains=st.lists(NAMES), routes=ROUTES),
        "httpFilters": listed(typedConfig=st.dictionaries(WORDS, WORDS)),
        "accessLog": LOGS,
        "address": WORDS,
    },
)


@given(MESSAGES, MESSAGES)
def test_a_message_with_the_fields_that_differ_is_the_other_message(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    built = deepcopy(before)
    for field in differing_fields(before, after):
        applied(built, as_told(field))

    assert in_any_order(built) == in_any_order(after)


def as_told(field: ChangedField) -> dict[str, Any]:
    sides = {"before": field.before, "after": field.after}
    return {"path": field.path} | {name: deepcopy(value) for name, value in sides.items() if value is not ABSENT}


def told(before: Any, after: Any) -> dict[str, tuple[Any, Any]]:
    return {field.path: (field.before, field.after) for field in differing_fields(before, after)}


def chain(port: int, **fields: Any) -> dict[str, Any]:
    return {
        "filterChainMatch": {"destinationPort": port},
        "filters": [{"name": "tcp", "config": {"idle": "1s"}}],
    } | fields


def host(address: str, **fields: Any) -> dict[str, Any]:
    socket = {"address": address, "portValue": 80}
    return {"endpoint": {"address": {"socketAddress": socket}}, **fields}


LOG = {"name": "file", "typedConfig": {"path": "/a"}}
CASES: list[tuple[Any, Any, dict[str, tuple[Any, Any]]]] = [
    (
        {"filterChains": [chain(80), chain(443)]},
        {"filterChains": [chain(80, tls="x"), chain(443)]},
        {"filterChains[0].tls": (ABSENT, "x")},
    ),
    (
        {"filterChains": [chain(80), chain(443, tls="x")]},
        {"filterChains": [chain(22), chain(80), chain(443, tls="y")]},
        {
            'filterChains["destinationPort=443"].tls': ("x", "y"),
            'filterChains["destinationPort=22"]': (ABSENT, chain(22)),
        },
    ),
    (
        {"routes": [{"name": "a", "t": 1}, {"name": "b", "t": 1}]},
        {"routes": [{"name": "c"}, {"name": "a", "t": 1}, {"name": "b", "t": 2}]},
        {
            'routes["b"].t': (1, 2),
            'routes["c"]': (ABSENT, {"name": "c"}),
            "routes[]": (["a", "b"], ["c", "a", "b"]),
        },
    ),
    ({"routes": [{"name": "a"}, {"name": "b"}]}, {"routes": [{"name": "a"}]}, {'routes["b"]': ({"name": "b"}, ABSENT)}),
    (
        {"routes": [{"name": "a", "t": 1}]},
        {"routes": [{"name": "z", "t": 1}]},
        {"routes[0].name": ("a", "z")},
    ),
    (
        {"routes": [{"match": {"prefix": "/a"}}, {"match": {"prefix": "/"}}]},
        {"routes": [{"match": {"prefix": "/"}}]},
        {'routes["prefix=/a"]': ({"match": {"prefix": "/a"}}, ABSENT)},
    ),
    (
        {"endpoints": [{"locality": {"zone": "east"}, "lbEndpoints": [host("10.0.0.1"), host("10.0.0.3")]}]},
        {
            "endpoints": [
                {
                    "locality": {"zone": "east"},
                    "lbEndpoints": [host("10.0.0.2"), host("10.0.0.3", w=1), host("10.0.0.1")],
                }
            ]
        },
        {
            'endpoints[0].lbEndpoints["10.0.0.3:80"].w': (ABSENT, 1),
            'endpoints[0].lbEndpoints["10.0.0.2:80"]': (ABSENT, host("10.0.0.2")),
        },
    ),
    (
        {"endpoints": [{"lbEndpoints": []}]},
        {"endpoints": [{"locality": {"zone": "east"}, "lbEndpoints": []}, {"lbEndpoints": []}]},
        {'endpoints["east, priority 0"]': (ABSENT, {"locality": {"zone": "east"}, "lbEndpoints": []})},
    ),
    (
        {"accessLog": [LOG, {"name": "file", "typedConfig": {"path": "/b", "format": "x"}}]},
        {"accessLog": [{"name": "file", "typedConfig": {"path": "/b", "format": "y"}}]},
        {'accessLog["/b"].typedConfig.format': ("x", "y"), 'accessLog["/a"]': (LOG, ABSENT)},
    ),
    (
        {"virtualHosts": [{"name": "a"}, {"name": "b"}]},
        {"virtualHosts": [{"name": "b"}, {"name": "a"}]},
        {"virtualHosts[]": (["a", "b"], ["b", "a"])},
    ),
    (
        {"items": [{"endpoint": "a", "header": 1, "locality": "x", "typedConfig": []}, {}]},
        {"items": [{"endpoint": "b"}]},
        {
            "items": (
                [{"endpoint": "a", "header": 1, "locality": "x", "typedConfig": []}, {}],
                [{"endpoint": "b"}],
            )
        },
    ),
    ({"domains": ["a"]}, {"domains": ["a", "b"]}, {"domains": (["a"], ["a", "b"])}),
    (
        {"filters": [{"name": "x"}, {"name": "x"}]},
        {"filters": [{"name": "x"}]},
        {"filters": ([{"name": "x"}] * 2, [{"name": "x"}])},
    ),
]


@pytest.mark.parametrize(("before", "after", "fields"), CASES)
def test_of_lists_the_elements_that_differ_are_told(
    before: Any, after: Any, fields: dict[str, tuple[Any, Any]]
) -> None:
    assert told(before, after) == fields


def test_two_matches_that_look_alike_are_two() -> None:
    first, second = {"prefix": "/a, x=1"}, {"prefix": "/a", "x": "1"}

    matches: list[dict[str, Any]] = [
        first,
        second,
        {"x": 1},
        {},
        {"x": {}},
        {"x": ""},
        {"x": "{}"},
        {"x": "true"},
        {"x": True},
    ]
    paths = told({"routes": [{"match": match} for match in matches]}, {"routes": []})

    assert len(paths) == len(matches)
    assert {'routes["prefix=\\"/a, x=1\\""]', 'routes["prefix=/a, x=\\"1\\""]', 'routes["x=1"]', 'routes["*"]'} <= {
        *paths
    }


def test_custom_tags_are_told_by_their_tags() -> None:
    before = [{"tag": "a", "literal": {"value": "1"}}, {"tag": "b", "literal": {"value": "2"}}]
    after = [{"tag": "b", "literal": {"value": "3"}}]

    assert told({"customTags": before}, {"customTags": after}) == {
        'customTags["a"]': (before[0], ABSENT),
        'customTags["b"].literal.value': ("2", "3"),
    }
