"""Envoy's messages by their names: those that something has imported, and all others once one of them is needed."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from types import ModuleType

import envoy
from google.protobuf import symbol_database
from google.protobuf.message import Message


def message_type(name: str) -> type[Message]:
    """The type of a message, such as `envoy.config.cluster.v3.Cluster`. Raises `KeyError` if there is none."""
    try:
        return symbol_database.Default().GetSymbol(name)
    except KeyError:
        import_every_message()
        return symbol_database.Default().GetSymbol(name)


@cache
def import_every_message() -> tuple[ModuleType, ...]:
    """Import all that Envoy knows, which takes a while."""
    names = [module.name for module in pkgutil.walk_packages(envoy.__path__, "envoy.")]
    return tuple(importlib.import_module(name) for name in names if name.endswith("_pb2"))
