"""New tokens: what somebody may ask to stand in one, and the signature (record 0058)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final, TypeVar

import jwt

from cp.access.keys import Purpose, SigningKey
from cp.access.tokens import ALGORITHM, MOST_CHARACTERS
from cp.model.duration import Duration
from cp.model.paths import entry
from cp.model.violation import Violation
from cp.resources.checks import above_zero, must_be_set, one_of
from cp.resources.schema import Schema, check

PROXY_TYPES: Final = ("dataplane", "ingress", "egress")

_SKEW: Final = 5
"""Seconds by which clocks may differ: so much earlier a token begins, and so much later it ends."""

_TEN_YEARS: Final = 10 * 365 * 24 * 3600.0

R = TypeVar("R", bound="TokenRequest")


class TooLong(Exception):
    """What a token should say makes it longer than tokens may be."""


class TokenRequest(Schema, frozen=True):
    """What a new token is to say. The fields are those that Kuma's API takes."""

    purpose: ClassVar[Purpose]
    valid_for: Duration | None = None

    @property
    def mesh_name(self) -> str:
        """The mesh with whose key it is signed; empty for tokens that belong to none."""
        return ""

    @property
    def claims(self) -> Mapping[str, Any]:
        raise NotImplementedError

    @property
    def lifetime(self) -> float:
        """Seconds."""
        return _TEN_YEARS if self.valid_for is None else self.valid_for.seconds

    def faults(self) -> Iterator[Violation]:
        yield from above_zero("validFor", self.valid_for)


class DataplaneTokenRequest(TokenRequest, frozen=True):
    """A token for one proxy, for those with some tags, or for all of a mesh."""

    purpose: ClassVar[Purpose] = "dataplane"
    name: str | None = None
    mesh: str | None = None
    tags: dict[str, list[str]] | None = None
    type: str | None = None
    workload: str | None = None

    @property
    def mesh_name(self) -> str:
        return self.mesh or ""

    @property
    def claims(self) -> Mapping[str, Any]:
        return {
            "Name": self.name or "",
            "Mesh": self.mesh or "",
            "Tags": self.tags or {},
            "Type": self.type or "",
            "Workload": self.workload or "",
        }

    def faults(self) -> Iterator[Violation]:
        yield from must_be_set("mesh", self.mesh, "a token is for the proxies of one mesh")
        for name, text in (("name", self.name), ("mesh", self.mesh), ("workload", self.workload)):
            yield from _printables(name, text)
        for tag, values in (self.tags or {}).items():
            yield from _printables(f"tags{entry(tag)}", tag, *values)
            if not values:
                yield Violation(f"tags{entry(tag)}", "has no value, so no proxy could use the token", "give it one")
        if self.type is not None:
            yield from one_of("type", self.type, PROXY_TYPES)
        yield from super().faults()


class UserTokenRequest(TokenRequest, frozen=True):
    """A token for a person or a program."""

    purpose: ClassVar[Purpose] = "user"
    name: str | None = None
    groups: list[str] | None = None

    @property
    def claims(self) -> Mapping[str, Any]:
        return {"Name": self.name or "", "Groups": self.groups or []}

    def faults(self) -> Iterator[Violation]:
        yield from must_be_set("name", self.name, "say whose token it is")
        yield from _printables("name", self.name)
        yield from _printables("groups", *(self.groups or ()))
        yield from must_be_set("validFor", self.valid_for, "say how long the token is good, such as `24h`")
        yield from super().faults()


class ZoneTokenRequest(TokenRequest, frozen=True):
    """A token for the services of a zone."""

    purpose: ClassVar[Purpose] = "zone"
    zone: str | None = None
    scope: list[str] | None = None

    @property
    def claims(self) -> Mapping[str, Any]:
        return {"Zone": self.zone or "", "Scope": self.scope or []}

    def faults(self) -> Iterator[Violation]:
        yield from must_be_set("zone", self.zone, "a token is for one zone")
        yield from _printables("zone", self.zone)
        yield from _printables("scope", *(self.scope or ()))
        yield from super().faults()


class InstanceTokenRequest(TokenRequest, frozen=True):
    """A token with which one control plane asks another one. Nobody can order one."""

    purpose: ClassVar[Purpose] = "instance"
    caller: str = ""
    audience: str = ""

    @property
    def claims(self) -> Mapping[str, Any]:
        return {"Instance": self.caller, "Audience": self.audience}


def request_of(schema: type[R], data: Any) -> tuple[R | None, list[Violation]]:
    """What somebody asks for, and all that is wrong with it. An empty text is the same as leaving a field out."""
    if isinstance(data, dict):
        data = {name: value for name, value in data.items() if value != ""}  # 0 is a fault
    request, faults = check(schema, data)
    faulty = {fault.path for fault in faults}
    if request is not None:
        faults += [fault for fault in request.faults() if fault.path not in faulty]
    return request, faults


def new_token(request: TokenRequest, key: SigningKey, *, now: float, token_id: str) -> str:
    """A token that says what was asked for. Raises `TooLong`."""
    begins = int(now) - _SKEW
    times = {"iat": begins, "nbf": begins, "exp": int(now + request.lifetime) + _SKEW}
    claims = {**request.claims, "jti": token_id, **times}
    token = jwt.encode(claims, key.key, algorithm=ALGORITHM, headers={"kid": key.kid})
    if len(token) > MOST_CHARACTERS:
        raise TooLong(f"the token would have more than {MOST_CHARACTERS} characters; ask for less")
    return token


def _printables(path: str, *texts: str | None) -> Iterator[Violation]:
    """Texts that the reader of a token would not take (`cp.access.tokens`)."""
    if not all(text is None or text.isprintable() for text in texts):
        yield Violation(path, "must not have control characters in it, such as line breaks")
