"""Tokens: who a genuine token says that its holder is, and for which proxy it is good.

Nothing that stands in a token is believed or repeated before its signature was verified (record 0058).
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from jwt import InvalidTokenError, api_jws

from cp.access.keys import KeyRing, Purpose
from cp.model.names import Key
from cp.resources.dataplane import SERVICE_TAG, Dataplane
from cp.resources.labels import WORKLOAD_LABEL
from cp.resources.resource import Resource

ALGORITHM: Final = "RS256"
MOST_CHARACTERS: Final = 16 * 1024

_END_OF_TIME: Final = 2**53
"""Seconds. A later moment is no exact number in JSON (RFC 8259, section 6)."""

_HEADER: Final = frozenset({"alg", "kid", "typ"})
"""Every other header of a JWS offers a key or changes how it is read (RFC 7515, section 4.1)."""

_USUAL_TYPE: Final = "dataplane"
"""The type of proxy that a token is for which names none."""

_REGISTERED: Final = frozenset({"jti", "exp", "iat", "nbf"})
_DATAPLANE: Final = _REGISTERED | {"Name", "Mesh", "Tags", "Type", "Workload"}
_USER: Final = _REGISTERED | {"Name", "Groups"}
_INSTANCE: Final = _REGISTERED | {"Instance", "Audience"}


class TokenRefused(Exception):
    """A token that opens nothing. The reason may be shown: nothing unverified is in it, and never the token."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason: Final = reason


@dataclass(frozen=True, slots=True)
class DataplaneClaims:
    """What a token of a proxy says. What is empty leaves the holder free."""

    name: str
    mesh: str
    tags: Mapping[str, frozenset[str]]
    type: str
    workload: str
    id: str
    expires: float


@dataclass(frozen=True, slots=True)
class UserClaims:
    """What a token of a person or a program says."""

    name: str
    groups: tuple[str, ...]
    id: str
    expires: float


@dataclass(frozen=True, slots=True)
class _Unverified:
    """A token that was read, and from which nothing but the name of its key may be taken yet."""

    token: str = field(repr=False)
    header: Mapping[str, Any]
    claims: Mapping[str, Any]


def dataplane_claims(token: str, keys: KeyRing, now: float) -> DataplaneClaims:
    """What the token of a proxy says. Raises `TokenRefused`."""
    unverified = _unverified(token)
    mesh = unverified.claims.get("Mesh")
    if not isinstance(mesh, str) or not mesh:
        raise TokenRefused("it is not the token of a proxy")
    claims = _verified(unverified, keys, "dataplane", mesh)
    _check_names(claims, _DATAPLANE, required={"Mesh", "jti", "exp"})
    expires = _check_times(claims, now)
    _check_revoked(claims, keys, "dataplane", mesh)
    return DataplaneClaims(
        name=_text(claims, "Name"),
        mesh=mesh,
        tags=_tags(claims),
        type=_text(claims, "Type"),
        workload=_text(claims, "Workload"),
        id=_text(claims, "jti"),
        expires=expires,
    )


def user_claims(token: str, keys: KeyRing, now: float) -> UserClaims:
    """What the token of a person says. Raises `TokenRefused`."""
    claims = _verified(_unverified(token), keys, "user", "")
    _check_names(claims, _USER, required={"Name", "Groups", "jti", "exp"})
    expires = _check_times(claims, now)
    _check_revoked(claims, keys, "user", "")
    name = _text(claims, "Name")
    if not name:
        raise TokenRefused("it names nobody")
    return UserClaims(name, _texts("Groups", claims["Groups"]), _text(claims, "jti"), expires)


def calling_instance(token: str, audience: str, keys: KeyRing, now: float) -> str:
    """The id of the control plane that asks the one with the id `audience`. Raises `TokenRefused`."""
    claims = _verified(_unverified(token), keys, "instance", "")
    _check_names(claims, _INSTANCE, required={"Instance", "Audience", "jti", "exp"})
    _check_times(claims, now)
    if _text(claims, "Audience") != audience:
        raise TokenRefused("it is for another control plane than this one, which may have been started again")
    return _text(claims, "Instance")


def must_admit(
    claims: DataplaneClaims,
    key: Key,
    dataplane: Resource | None,
    *,
    is_named_by_workload: bool = False,
    new_sender: str = "",
) -> None:
    """Check that a token is good for the proxy of this name, with the Dataplane that it has. Raises `TokenRefused`.

    The identity of a proxy may be made of its label `kuma.io/workload` (`is_named_by_workload`). Then the token must
    name the workload too, or its holder could choose whom it is. A Dataplane with which the proxy would newly receive
    the keys of a MeshGateway (`new_sender`) takes a token that names its service, for the same reason.
    """
    if claims.mesh != key.mesh:
        raise TokenRefused(f"it is for the mesh `{claims.mesh}`, and the proxy is in `{key.mesh}`")
    if claims.name not in {"", key.name}:
        raise TokenRefused(f"it is for the proxy `{claims.name}`, and this is `{key.name}`")
    wanted_type, proxy_type = claims.type or _USUAL_TYPE, key.type.lower()
    if wanted_type != proxy_type:
        raise TokenRefused(f"it is for a proxy of type {wanted_type}, and this is of type {proxy_type}")
    _check_tags(claims, dataplane)
    _check_workload(claims, dataplane, is_named_by_workload=is_named_by_workload)
    if new_sender and SERVICE_TAG not in claims.tags:
        raise TokenRefused(
            f"it names no `{SERVICE_TAG}`, and the proxy would receive the keys of MeshGateway {new_sender}; generate "
            f"one with --tag {SERVICE_TAG}=…"
        )


def _check_tags(claims: DataplaneClaims, dataplane: Resource | None) -> None:
    tags = {} if dataplane is None else _spec(dataplane).tag_values()
    for tag, allowed in claims.tags.items():
        if tag not in tags:
            raise TokenRefused(f"it is for proxies with the tag `{tag}`, which this proxy does not have")
        if not tags[tag] <= allowed:
            values, wanted = _list(tags[tag] - allowed), _list(allowed)
            raise TokenRefused(f"it allows {wanted} for the tag `{tag}`, and this proxy has {values}")


def _check_workload(claims: DataplaneClaims, dataplane: Resource | None, *, is_named_by_workload: bool) -> None:
    workload = dataplane.labels.get(WORKLOAD_LABEL) if dataplane is not None else None
    if claims.workload and workload is None:
        raise TokenRefused(f"it is for the workload `{claims.workload}`, and this proxy has no label {WORKLOAD_LABEL}")
    if claims.workload and claims.workload != workload:
        raise TokenRefused(f"it is for the workload `{claims.workload}`, and this proxy is of `{workload}`")
    if is_named_by_workload and workload is not None and not claims.workload:
        raise TokenRefused(
            f"it names no workload, and the identity of this proxy is made of its label {WORKLOAD_LABEL}"
        )


def _spec(dataplane: Resource) -> Dataplane:
    spec: Dataplane = dataplane.spec
    return spec


def _list(values: Iterable[str]) -> str:
    return ", ".join(f"`{value}`" for value in sorted(values)) or "no value"


# --- from a text to claims that were verified -----------------------------------------------------------------------


def _unverified(token: str) -> _Unverified:
    if len(token) > MOST_CHARACTERS:
        raise TokenRefused(f"it has more than {MOST_CHARACTERS} characters")
    header, claims, signature = _segments(token)
    _bytes(signature)  # an encoding that is not the only one would give a token many spellings
    return _Unverified(token, _object(header), _object(claims))


def _segments(token: str) -> tuple[str, str, str]:
    segments = token.split(".", 3)
    if len(segments) != 3:  # noqa: PLR2004  # header, claims, signature: RFC 7519, section 3
        _refuse_form()
    return segments[0], segments[1], segments[2]


def _object(segment: str) -> Mapping[str, Any]:
    try:
        value = json.loads(_bytes(segment).decode("utf-8"), object_pairs_hook=_distinct, parse_constant=_no_number)
    except (ValueError, RecursionError):
        _refuse_form()
    if not isinstance(value, dict):
        _refuse_form()
    return value


def _bytes(segment: str) -> bytes:
    """What a segment encodes, if it is the shortest and only spelling of it (RFC 7515, section 2)."""
    try:
        data = base64.b64decode(segment + "=" * (-len(segment) % 4), altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        _refuse_form()
    if base64.urlsafe_b64encode(data).rstrip(b"=").decode() != segment:
        _refuse_form()
    return data


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object that says each thing once: readers do not agree which of two values counts (RFC 8725, section 2.4)."""
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError
    return values


def _no_number(_constant: str) -> NoReturn:
    """NaN and Infinity, which are no JSON."""
    raise ValueError


def _refuse_form() -> NoReturn:
    raise TokenRefused("it is not a token") from None


def _verified(unverified: _Unverified, keys: KeyRing, purpose: Purpose, mesh: str) -> Mapping[str, Any]:
    header = unverified.header
    if header.get("alg") != ALGORITHM:
        raise TokenRefused(f"it is not signed with {ALGORITHM}")
    if not header.keys() <= _HEADER or header.get("typ", "JWT") != "JWT":
        raise TokenRefused("it has a header that tokens do not have")
    kid = header.get("kid")
    key = keys.public_key(purpose, mesh, kid) if isinstance(kid, str) else None
    if key is None:
        raise TokenRefused(
            "there is no signing key of the number that it names; if keys were rotated, generate it anew"
        )
    try:
        api_jws.decode(unverified.token, key, algorithms=[ALGORITHM])
    except (InvalidTokenError, ValueError):
        raise TokenRefused("its signature is wrong") from None
    return unverified.claims


# --- claims that were verified: they may be repeated ----------------------------------------------------------------


def _check_names(claims: Mapping[str, Any], known: frozenset[str], required: set[str]) -> None:
    if not claims.keys() <= known or not required <= claims.keys():
        raise TokenRefused("it is a token for something else: its claims are not those that are wanted here")


def _check_times(claims: Mapping[str, Any], now: float) -> float:
    """When the token expires. Raises `TokenRefused` if that has been, or if it is not valid yet."""
    expires, begins = _moment(claims, "exp"), _moment(claims, "nbf")
    _moment(claims, "iat")
    if now >= expires:
        raise TokenRefused("it has expired; generate a new one")
    if now < begins:
        raise TokenRefused("it is not valid yet; compare the clocks of both machines")
    return expires


def _check_revoked(claims: Mapping[str, Any], keys: KeyRing, purpose: Purpose, mesh: str) -> None:
    token_id = _text(claims, "jti")
    if not token_id:
        raise TokenRefused("its claim `jti` is empty, so it could not be revoked")
    if keys.is_revoked(purpose, mesh, token_id):
        raise TokenRefused("it was revoked")


def _moment(claims: Mapping[str, Any], name: str) -> float:
    value = claims.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _END_OF_TIME:
        _refuse_claim(name)
    return float(value)


def _text(claims: Mapping[str, Any], name: str) -> str:
    return _checked_text(name, claims.get(name, ""))


def _texts(name: str, value: Any) -> tuple[str, ...]:
    """A list of texts. Go writes null for an empty one."""
    if value is None:
        return ()
    if not isinstance(value, list):
        _refuse_claim(name)
    return tuple(_checked_text(name, text) for text in value)


def _tags(claims: Mapping[str, Any]) -> Mapping[str, frozenset[str]]:
    tags = claims.get("Tags")
    if tags is None:
        return {}
    if not isinstance(tags, dict):
        _refuse_claim("Tags")
    return {_checked_text("Tags", tag): frozenset(_texts("Tags", values)) for tag, values in tags.items()}


def _checked_text(name: str, value: Any) -> str:
    """A text that can be compared and shown: half a character could be neither written nor logged."""
    if not isinstance(value, str) or not value.isprintable():
        _refuse_claim(name)
    return value


def _refuse_claim(name: str) -> NoReturn:
    raise TokenRefused(f"its claim `{name}` cannot be read")
