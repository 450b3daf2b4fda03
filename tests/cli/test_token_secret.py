"""The token of a proxy, in the file that its Envoy reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cp.agent.token_secret import FILE, NAME, TokenSecret
from cp.client.credentials import Credentials
from cp.client.problem import Problem
from generators.bootstrap import TOKEN
from tests.support.waiting import eventually


def token_in(folder: Path) -> str:
    (secret,) = json.loads((folder / FILE).read_text())["resources"]
    assert secret["name"] == NAME
    token: str = secret["generic_secret"]["secret"]["inline_string"]
    return token


def test_the_bootstrap_asks_for_the_secret_by_its_name() -> None:
    assert NAME == TOKEN


def test_without_a_token_there_is_no_file(tmp_path: Path) -> None:
    secret = TokenSecret(tmp_path, Credentials(), print)
    secret.write()

    assert secret.path == ""
    assert not list(tmp_path.iterdir())


def test_the_file_is_for_its_owner_alone_and_has_no_line_end_in_the_token(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a.b.c\n")
    secret = TokenSecret(tmp_path, Credentials(token_file=str(tmp_path / "token")), print)
    secret.write()

    assert token_in(tmp_path) == "a.b.c"
    assert Path(secret.path).stat().st_mode & 0o777 == 0o600


def test_a_token_that_is_replaced_is_taken_and_a_bad_file_changes_nothing(tmp_path: Path) -> None:
    messages = list[str]()
    source = tmp_path / "token"
    source.write_text("one")
    secret = TokenSecret(tmp_path, Credentials(token_file=str(source)), messages.append)
    secret.write()
    inode = (tmp_path / FILE).stat().st_ino

    for text in ("", "two words", "", "two"):
        source.write_text(text)
        secret.look()
        secret.look()
        assert token_in(tmp_path) == ("two" if text == "two" else "one")

    assert (tmp_path / FILE).stat().st_ino != inode, "Envoy reads it again only if another file takes its place"
    assert messages == [
        f"the token stays as it is: {source} has no token in it",
        f"the token stays as it is: {source} has something else in it than a token",
        f"the token stays as it is: {source} has no token in it",
        "the token was replaced",
    ]


def test_while_it_is_kept_it_is_looked_at(tmp_path: Path) -> None:
    source = tmp_path / "token"
    source.write_text("one")
    secret = TokenSecret(tmp_path, Credentials(token_file=str(source)), lambda _: None)
    secret.write()
    with secret.kept():
        source.write_text("two")
        eventually(lambda: token_in(tmp_path) == "two")


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe"])
def test_a_proxy_does_not_start_without_the_token_that_was_named(tmp_path: Path, content: bytes | None) -> None:
    source = tmp_path / "token"
    if content is not None:
        source.write_bytes(content)

    with pytest.raises(Problem, match="token"):
        TokenSecret(tmp_path, Credentials(token_file=str(source)), print).write()
