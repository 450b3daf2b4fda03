"""The file with the public keys of tokens that are signed elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cp.access.keys import KeyRing
from cp.access.tokens import TokenRefused, dataplane_claims, user_claims
from cp.serving.public_keys import offline_keys
from cp.settings import BadSettings, Settings, load
from tests.access.forge import DATAPLANE, NOW, USER, pem, private_key, public_pem, signing_keys, token, world

PUBLIC = public_pem(private_key()).decode()


def settings(folder: Path, data: Any = None, **options: Any) -> Settings:
    """Settings with a file that has these keys. JSON is YAML too."""
    if data is not None:
        (folder / "keys.yaml").write_text(data if isinstance(data, str) else json.dumps(data))
        options["token_public_keys"] = folder / "keys.yaml"
    return load(work_dir=folder, **options)


def test_tokens_are_verified_with_the_keys_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "jwt").mkdir()
    (tmp_path / "jwt" / "default.pem").write_text(PUBLIC)
    data = {
        "dataplane": [{"mesh": "default", "kid": "1", "keyFile": "jwt/default.pem"}],
        "user": [{"kid": "1", "key": PUBLIC}],
    }

    ring = KeyRing.of(world(), offline_keys(settings(tmp_path, data)))

    assert dataplane_claims(token(DATAPLANE), ring, NOW).name == "web-1"
    assert user_claims(token(USER), ring, NOW).name == "jane"


def test_secrets_verify_unless_the_settings_say_otherwise(tmp_path: Path) -> None:
    def ring(**options: bool) -> KeyRing:
        return KeyRing.of(world(*signing_keys()), offline_keys(settings(tmp_path, **options)))

    assert dataplane_claims(token(DATAPLANE), ring(takes_user_token_secrets=False), NOW).name == "web-1"
    assert user_claims(token(USER), ring(takes_dataplane_token_secrets=False), NOW).name == "jane"
    with pytest.raises(TokenRefused):
        dataplane_claims(token(DATAPLANE), ring(takes_dataplane_token_secrets=False), NOW)
    with pytest.raises(TokenRefused):
        user_claims(token(USER), ring(takes_user_token_secrets=False), NOW)


@pytest.mark.parametrize(
    ("data", "faults"),
    [
        ("[", ["is not YAML"]),
        ("[]", ["must be an object, not a list; it has `dataplane`, `user`"]),
        ({"users": []}, ["users: unknown field; did you mean `user`?"]),
        ({"user": [{"kid": 1, "key": PUBLIC}]}, ['user[0].kid: must be a text, not `1`; write `"1"`']),
        ({"user": [{"key": PUBLIC}]}, ["user[0].kid: must be set; tokens name their key by it"]),
        (
            {"user": [{"kid": "1"}, {"kid": "2"}]},
            ["user[0]: must have `key` or `keyFile`; give it one of them"],
        ),
        (
            {"user": [{"kid": "1", "key": PUBLIC, "keyFile": "a"}]},
            ["user[0]: must have `key` or `keyFile`; give it one of them"],
        ),
        (
            {"user": [{"kid": "1", "key": PUBLIC, "mesh": "default"}]},
            ["user[0].mesh: has no meaning: people belong to no mesh; remove it"],
        ),
        (
            {"dataplane": [{"kid": "1", "key": PUBLIC}]},
            ["dataplane[0].mesh: must be set; tokens of proxies are for one mesh"],
        ),
        (
            {"user": [{"kid": "1", "keyFile": "gone.pem"}]},
            ["user[0].keyFile: cannot be read: No such file or directory"],
        ),
        (
            {"user": [{"kid": "1", "key": pem(private_key()).decode()}]},
            ["user[0]: the public key is not an RSA key of at least 2048 bits"],
        ),
    ],
)
def test_what_is_wrong_with_the_file_is_told(tmp_path: Path, data: Any, faults: list[str]) -> None:
    with pytest.raises(BadSettings) as bad:
        offline_keys(settings(tmp_path, data))

    assert list(bad.value.faults) == [f"KOGUMA_TOKEN_PUBLIC_KEYS={tmp_path}/keys.yaml: {fault}" for fault in faults]
    assert "PRIVATE" not in str(bad.value)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match="cannot be read: No such file or directory"):
        offline_keys(load(work_dir=tmp_path, token_public_keys=tmp_path / "gone"))
