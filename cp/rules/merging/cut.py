"""Confs with one field less, with one field alone, or with one more."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from cp.model.paths import Step, step, steps
from cp.rules.merging.origins import Conf

_CUT: Final = object()


def without(conf: Conf, target: str) -> Conf:
    """A conf without one field, and without the objects and lists that become empty by that."""
    return _or_nothing(_cut(conf, "", target))


def alone(conf: Conf, target: str) -> Conf:
    """A conf with one field and no other."""
    return _or_nothing(_only(conf, "", target))


def put(conf: Conf, target: str, value: Any) -> Conf:
    """A conf with one more field. A field inside a list is not added."""
    path = list(steps(target))
    return conf if any(isinstance(key, int) for key in path) else _put(conf, path, value)


def _put(conf: Any, path: Sequence[Step], value: Any) -> Any:
    if not path:
        return value
    fields = conf if isinstance(conf, Mapping) else {}
    return {**fields, path[0]: _put(fields.get(path[0]), path[1:], value)}


def _cut(value: Any, path: str, target: str) -> Any:
    if path == target:
        return _CUT
    if not _leads_to(path, target):
        return value
    return _kept(value, path, lambda inner, at: _cut(inner, at, target))


def _only(value: Any, path: str, target: str) -> Any:
    if path == target:
        return value
    return _kept(value, path, lambda inner, at: _only(inner, at, target)) if _leads_to(path, target) else _CUT


def _kept(value: Any, path: str, keep: Callable[[Any, str], Any]) -> Any:
    if isinstance(value, Mapping):
        fields = {name: keep(inner, step(path, name)) for name, inner in value.items()}
        return {name: inner for name, inner in fields.items() if inner is not _CUT} or _CUT
    if isinstance(value, list):
        return [kept for at, inner in enumerate(value) if (kept := keep(inner, step(path, at))) is not _CUT] or _CUT
    return value


def _leads_to(path: str, target: str) -> bool:
    return not path or target.startswith((f"{path}.", f"{path}["))


def _or_nothing(conf: Any) -> Conf:
    """An empty conf where nothing is left: a policy without fields still does what it does by itself."""
    return {} if conf is _CUT else conf
