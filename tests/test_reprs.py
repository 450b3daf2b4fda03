"""What has a secret in it does not show it as a text: texts of objects get into logs and stack traces."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any, Final

import msgspec

import cp
import generators
from cp.access.keys import KeyRing
from cp.access.tokens import _unverified
from cp.api.bootstrap_request import BootstrapRequest
from generators.bootstrap import EnvoyIdentity, ListenAddress
from tests.access import forge

SECRET_NAMES: Final = {"token", "dataplane_token", "password", "private_key", "secret_key", "key_pem"}
KEYS: Final = {
    "bytes",
    "str",
    "RSAPrivateKey",
    "EllipticCurvePrivateKey",
    "PrivateKey",
    "CertificateIssuerPrivateKeyTypes",
}


def classes() -> Iterator[type[Any]]:
    for package in (cp, generators):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                members = vars(importlib.import_module(module.name)).values()
                yield from (
                    member for member in members if isinstance(member, type) and member.__module__ == module.name
                )


def is_secret(name: str, kind: str) -> bool:
    """A field may hold the text or the bytes of a secret; a reference to one is something else."""
    kind = kind.removesuffix(" | None")
    return (name in SECRET_NAMES and kind in KEYS) or (name in {"key", "private"} and kind in KEYS - {"str"})


def shown() -> Iterator[str]:
    for each in classes():
        if dataclasses.is_dataclass(each) and "__repr__" in vars(each) and each.__dataclass_params__.repr:  # type: ignore[attr-defined]
            for field in dataclasses.fields(each):
                if field.repr and is_secret(field.name, str(field.type)):
                    yield f"{each.__module__}.{each.__name__}.{field.name}"
        elif issubclass(each, msgspec.Struct) and each.__repr__ is msgspec.Struct.__repr__:
            for name, kind in each.__annotations__.items():
                if is_secret(name, str(kind)):
                    yield f"{each.__module__}.{each.__name__}.{name}"


def test_no_class_shows_a_field_that_is_a_secret() -> None:
    assert sorted(set(shown())) == []


def test_tokens_are_in_no_text() -> None:
    token = forge.token(forge.DATAPLANE)
    admin = ListenAddress("127.0.0.1", 9901)
    holders = (
        _unverified(token),
        EnvoyIdentity("default", "web-1", "web", admin, token=token),
        BootstrapRequest(mesh="default", name="web-1", dataplane_token=token),
        KeyRing.of(forge.world(*forge.signing_keys())),
    )

    assert not [type(holder).__name__ for holder in holders if token in repr(holder)]
    assert "web-1" in repr(holders[2])


def test_resource_repr_shows_its_key_alone() -> None:
    secrets = forge.world(*forge.signing_keys()).table("Secret", "default")

    assert secrets
    assert [repr(secret) for secret in secrets] == [f"<Secret default/{secret.name}>" for secret in secrets]
