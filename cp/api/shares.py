"""Whose requests are counted together, where each caller has a share."""

from __future__ import annotations

from typing import Final

from starlette.datastructures import Headers
from starlette.types import Scope

from cp.access.rights import NOBODY
from cp.api.authentication import host_of, is_local
from cp.api.caller import ApiCaller

LOCAL: Final = "administrators on this machine"
ADDRESS: Final = "address "


def share_of(caller: ApiCaller, scope: Scope) -> str:
    """A user is one caller, from whatever address; who shows no token is one by his address."""
    if caller.is_administrator and is_local(scope, Headers(scope=scope)):
        return LOCAL
    return f"{ADDRESS}{host_of(scope)}" if caller.user == NOBODY else f"user {caller.user.name}"
