"""Lists: which resources, and one page of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from starlette.datastructures import URL, QueryParams

from cp.api.errors import bad_request
from cp.api.numbers import natural, shortened
from cp.store.port import Stored

T = TypeVar("T")

DEFAULT_SIZE: Final = 100
LARGEST_SIZE: Final = 1000
_MOST_DIGITS: Final = 19

_LABEL: Final = "filter[labels."
_GATEWAYS: Final = ("true", "false", "builtin", "delegated")

Filter = Callable[[Stored], bool]


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A part of a list, the length of the whole, and where the next part begins."""

    total: int
    items: Sequence[T]
    next: str | None

    def as_data(self, url: URL, items: Sequence[Any]) -> dict[str, Any]:
        link = str(url.include_query_params(offset=self.next)) if self.next is not None else None
        return {"total": self.total, "items": list(items), "next": link}


def cut(part: Page[T], size: int, place: Callable[[T], tuple[str, str]]) -> Page[T]:
    """The first of a page, if that are fewer; the next page begins behind them."""
    items = part.items[:size]
    return part if size >= len(part.items) else Page(part.total, items, "/".join(place(items[-1])))


def page(listed: Sequence[T], query: QueryParams, place: Callable[[T], tuple[str, str]]) -> Page[T]:
    """One page. The offsets that we give out name the last resource of the page before, so none is missed when others
    come or go. Those of Kuma's tools are numbers, and count resources.

    A resource's place is its mesh and its name.
    """
    size = _size(query)
    ordered = sorted(listed, key=place)
    following = _behind(ordered, query.get("offset") or "0", place)
    items = following[:size]
    return Page(len(ordered), items, "/".join(place(items[-1])) if len(following) > size else None)


def wanted(query: QueryParams) -> Filter:
    """Whether a resource is in the list that was asked for."""
    filters = list(_filters(query))
    return lambda stored: all(accepts(stored) for accepts in filters)


def _filters(query: QueryParams) -> Iterator[Filter]:
    if name := query.get("name"):
        yield lambda stored: name in stored.document.key.name
    for parameter, value in query.multi_items():
        if parameter.startswith("filter["):
            yield _labelled(_label(parameter), value)
    if tags := [_tag(text) for text in query.getlist("tag")]:
        yield lambda stored: _has_tags(stored.document.data, tags)
    if (gateway := query.get("gateway")) is not None:
        if gateway not in _GATEWAYS:
            raise bad_request("gateway", f"`{gateway}` is not one of {', '.join(_GATEWAYS)}")
        yield lambda stored: _is_gateway(stored.document.data, gateway)


def place_of(stored: Stored) -> tuple[str, str]:
    return stored.document.key.mesh, stored.document.key.name


def _size(query: QueryParams) -> int:
    text = query.get("size") or str(DEFAULT_SIZE)
    size = natural(text)
    if size is None or not 1 <= size <= LARGEST_SIZE:
        raise bad_request("size", f"`{shortened(text)}` is not a number from 1 to {LARGEST_SIZE}")
    return size


def _behind(ordered: Sequence[T], offset: str, place: Callable[[T], tuple[str, str]]) -> Sequence[T]:
    """What comes behind an offset; nothing where that is past the end."""
    mesh, slash, name = offset.partition("/")
    if slash:
        return [item for item in ordered if place(item) > (mesh, name)]
    if not offset.isascii() or not offset.isdecimal():
        raise bad_request(
            "offset", f"`{shortened(offset)}` is no offset", "take the one that stands in `next`, or a number"
        )
    return ordered[int(offset) :] if len(offset) <= _MOST_DIGITS else []


def _label(parameter: str) -> str:
    if not parameter.startswith(_LABEL) or not parameter.endswith("]"):
        raise bad_request(parameter, "only labels are filtered by", "write filter[labels.NAME]=VALUE")
    return parameter.removeprefix(_LABEL).removesuffix("]")


def _labelled(name: str, value: str) -> Filter:
    return lambda stored: _mapping(stored.document.data.get("labels")).get(name) == value


def _tag(text: str) -> tuple[str, str]:
    name, _, value = text.partition(":")
    return name, value


def _has_tags(data: Mapping[str, Any], tags: Sequence[tuple[str, str]]) -> bool:
    """Whether one inbound, the gateway or the labels have all tags. As in Kuma, a part of a value is enough."""
    networking = _mapping(data.get("networking"))
    inbounds = networking.get("inbound")
    places = [*(inbounds if isinstance(inbounds, list) else []), networking.get("gateway")]
    tagged = [_mapping(_mapping(place).get("tags")) for place in places] + [_mapping(data.get("labels"))]
    return any(all(name in have and value in str(have[name]) for name, value in tags) for have in tagged)


def _is_gateway(data: Mapping[str, Any], wanted_gateway: str) -> bool:
    gateway = _mapping(data.get("networking")).get("gateway")
    if wanted_gateway in {"true", "false"}:
        return (gateway is not None) == (wanted_gateway == "true")
    return gateway is not None and str(_mapping(gateway).get("type", "DELEGATED")).lower() == wanted_gateway


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
