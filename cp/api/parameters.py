"""Query parameters. Of a write, an unknown one is an error: a write with a misspelt `dryRun` would be made.

A parameter with a fixed set of values has one of these in every request: the answer to another value would be taken for
the answer to what was meant.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Final

from starlette.requests import Request

from cp.api.errors import bad_request
from cp.api.near import instead
from cp.api.numbers import shortened

_READS: Final = frozenset({"GET", "HEAD"})
_LOOKS_AHEAD: Final = frozenset({"dryRun", "plan", "preflight", "findings"})
_DELETES: Final = _LOOKS_AHEAD | {"cascade"}

KNOWN: Final[Mapping[tuple[str, str], frozenset[str]]] = MappingProxyType(
    {
        ("POST", "/_apply"): _LOOKS_AHEAD,
        ("POST", "/_rollback"): _LOOKS_AHEAD,
        ("PUT", "/{plural}/{name}"): _LOOKS_AHEAD,
        ("PUT", "/meshes/{mesh}/{plural}/{name}"): _LOOKS_AHEAD,
        ("DELETE", "/{plural}/{name}"): _DELETES,
        ("DELETE", "/meshes/{mesh}/{plural}/{name}"): _DELETES,
    }
)
"""The parameters of each method and route; routes that are not listed have none."""


def must_know_parameters(request: Request, path: str) -> None:
    """Check the parameters of a write. `path` is that of the route. Raises `ApiError` for an unknown one."""
    if request.method in _READS:
        return
    known = KNOWN.get((request.method, path), frozenset())
    for name in request.query_params:
        if name not in known:
            hint = instead(name, known) or "remove it: this path has no parameters"
            raise bad_request(shortened(name), f"there is no parameter `{shortened(name)}`", hint)


def choice(request: Request, name: str, values: Collection[str], default: str = "") -> str:
    """Return the value of a parameter that has one of some values. Raises `ApiError`."""
    text = request.query_params.get(name, default)
    if text != default and text not in values:
        hint = f"write one of {', '.join(values)}"
        raise bad_request(name, f"there is no {name} `{shortened(text)}`", hint)
    return text


def is_asked(request: Request, name: str, *, default: bool = False) -> bool:
    """Return the value of a parameter that is `true` or `false`. Raises `ApiError`."""
    text = request.query_params.get(name, "true" if default else "false")
    if text not in {"true", "false"}:
        raise bad_request(name, f"`{shortened(text)}` is neither `true` nor `false`")
    return text == "true"
