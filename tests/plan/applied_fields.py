"""What a resource is after the fields of a plan, worked out from what the plan says alone.

Nothing of the product is asked how a path is read, or what an element of a list is called: the plan has to be enough.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

_STEP: Final = re.compile(r'\["(?P<key>(?:[^"\\]|\\.)*)"\]|\[(?P<index>\d+)\]|(?P<order>\[\])|\.?(?P<name>[^.\[\]]+)')
_IN_JSON: Final = re.compile(r"\s*(true|false|null|NaN|-?Infinity|-?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?)\s*")
ORDER: Final = object()
_ORDER_MEANS_NOTHING: Final = ("filterChains", "virtualHosts", "clusters", "endpoints", "lbEndpoints")


def applied(data: Any, field: Mapping[str, Any]) -> None:
    """Change a field as a plan says. It has to be there as the plan says that it was."""
    assert field.get("before") != field.get("after"), field
    _must_be_small(field)
    *outer, last = _steps(field["path"])
    for step in outer:
        data = data[_found(data, step)] if isinstance(data, list) else data[step]
    if last is ORDER:
        _sort(data, field)
    elif isinstance(data, list):
        _change_element(data, last, field)
    elif "after" in field:
        assert data.get(last) == field.get("before"), field
        data[last] = field["after"]
    else:
        assert data.pop(last) == field["before"], field


def in_any_order(value: Any, name: str = "") -> Any:
    """A value with the lists sorted of which the order means nothing to Envoy."""
    if isinstance(value, Mapping):
        return {key: in_any_order(inner, key) for key, inner in value.items()}
    if isinstance(value, list):
        items = [in_any_order(item) for item in value]
        return sorted(items, key=partial(json.dumps, sort_keys=True)) if name in _ORDER_MEANS_NOTHING else items
    return value


def _must_be_small(field: Mapping[str, Any]) -> None:
    """It tells nothing that is the same on both sides beside what differs."""
    before, after = field.get("before"), field.get("after")
    assert not (isinstance(before, Mapping) and isinstance(after, Mapping)), field
    if isinstance(before, list) and isinstance(after, list):
        sides = [[item.get("name") for item in side if isinstance(item, Mapping)] for side in (before, after)]
        are_named = all(len({*names} - {None}) == len(side) for names, side in zip(sides, (before, after), strict=True))
        assert not (before and after and are_named), field


def _steps(path: str) -> Iterator[Any]:
    at = 0
    while at < len(path):
        step = _STEP.match(path, at)
        assert step is not None, path
        at = step.end()
        if step["order"]:
            yield ORDER
        elif step["index"]:
            yield int(step["index"])
        else:
            yield step["name"] if step["key"] is None else re.sub(r"\\(.)", r"\1", step["key"])


def _found(items: list[Any], step: Any) -> int:
    """The place of an element, by its index or by what it is called."""
    if isinstance(step, int):
        return step
    (place,) = (place for place, item in enumerate(items) if step in _called(item))
    return place


def _change_element(items: list[Any], step: Any, field: Mapping[str, Any]) -> None:
    if "before" not in field:
        assert step in _called(field["after"]), field
        assert not any(step in _called(item) for item in items), field
        items.append(field["after"])
        return
    place = _found(items, step)
    assert items[place] == field["before"], field
    if "after" in field:
        items[place] = field["after"]
    else:
        del items[place]


def _sort(items: list[Any], field: Mapping[str, Any]) -> None:
    places = [_found(items, key) for key in field["after"]]
    assert sorted(places) == list(range(len(items))), field
    items[:] = [items[place] for place in places]


def _called(item: Mapping[str, Any]) -> Iterator[str]:
    """All that tells an element of a list from others."""
    yield item.get("name", "")
    yield item.get("header", {}).get("key", "")
    if "match" in item:
        yield ", ".join(_leaves("", item["match"])) or "*"
    if "filters" in item:
        yield ", ".join(_leaves("", item.get("filterChainMatch", {}))) or "*"
    if "lbEndpoints" in item or "locality" in item:
        yield f"{'/'.join(item.get('locality', {}).values()) or '*'}, priority {item.get('priority', 0)}"
    socket = item["endpoint"].get("address", {}).get("socketAddress") if "endpoint" in item else None
    if socket is not None:
        yield f"{socket.get('address')}:{socket.get('portValue', 0)}"
    config = item.get("typedConfig", {})
    yield config.get("path") or config.get("commonConfig", {}).get("logName", "")
    if isinstance(item.get("tag"), str):
        yield item["tag"]


def _leaves(path: str, value: Any) -> Iterator[str]:
    if isinstance(value, Mapping) and (value or not path):
        for name, inner in value.items():
            yield from _leaves(f"{path}.{name}" if path else name, inner)
    elif isinstance(value, list) and value:
        for place, inner in enumerate(value):
            yield from _leaves(f"{path}[{place}]", inner)
    else:
        is_bare = (
            isinstance(value, str) and value and not re.search(r'[",\[{]', value) and not _IN_JSON.fullmatch(value)
        )
        yield f"{path}={value if is_bare else json.dumps(value, ensure_ascii=False)}"
