"""Encrypted documents: each decrypts with its key and under its name, or not at all."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cp.model.names import Key
from cp.store.encryption import DocumentCodec, SealedData
from cp.store.port import Unusable
from cp.store.secrets_keys import BYTES, SecretsKey, SecretsKeys, fingerprint

OLD = SecretsKey("old", bytes(range(32)))
NEW = SecretsKey("new", bytes(range(1, 33)))
SECRET = Key("Secret", "default", "a")
DATA = {"type": "Secret", "mesh": "default", "name": "a", "data": "c2VjcmV0IG9mIHRoZSBtZXNo"}

JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def encoded(codec_: DocumentCodec, key: Key = SECRET) -> bytes:
    return codec_.encode(key, DATA).encode()


def codec(*keys: SecretsKey) -> DocumentCodec:
    return DocumentCodec(SecretsKeys(keys), lambda key, _: key.type == "Secret", frozenset({"Secret"}))


def message(text: bytes) -> bytes:
    return base64.b64decode(json.loads(text).split(":")[3])


def with_message(text: bytes, changed: bytes) -> bytes:
    head = json.loads(text).rpartition(":")[0]
    return json.dumps(f"{head}:{base64.b64encode(changed).decode()}").encode()


@settings(max_examples=30)
@given(st.dictionaries(st.text(), JSON))
def test_what_is_encrypted_comes_back(data: dict[str, Any]) -> None:
    assert codec(NEW).decode(SECRET, codec(NEW).encode(SECRET, data).encode()) == data


def test_nothing_of_a_secret_is_in_its_text_and_no_two_texts_are_alike() -> None:
    texts = {encoded(codec(NEW)) for _ in range(20)}

    assert len(texts) == 20
    assert len({message(text)[:12] for text in texts}) == 20
    assert not any(DATA["data"].encode() in message(text) or DATA["data"].encode() in text for text in texts)


def test_what_is_no_secret_is_plain() -> None:
    key = replace(SECRET, type="MeshTimeout")

    assert json.loads(encoded(codec(NEW), key)) == DATA


def test_a_plain_document_is_read_with_keys_and_without() -> None:
    text = encoded(codec())

    assert json.loads(text) == DATA
    assert codec(NEW).decode(SECRET, text) == codec().decode(SECRET, text) == DATA


def test_all_keys_decrypt_and_the_first_encrypts() -> None:
    text = encoded(codec(OLD))

    assert codec(NEW, OLD).decode(SECRET, text) == DATA
    assert isinstance(codec(OLD).decode(SECRET, encoded(codec(NEW, OLD))), SealedData)


@pytest.mark.parametrize(
    "other",
    [Key("GlobalSecret", "", "a"), Key("Secret", "other", "a"), Key("Secret", "default", "b"), Key("Secret", "", "a")],
)
def test_a_text_decrypts_under_no_other_name(other: Key) -> None:
    text = encoded(codec(NEW))

    assert isinstance(codec(NEW).decode(other, text), SealedData)
    assert "for another document" in codec(NEW).state(other, text).reason


def test_parts_of_a_name_do_not_run_into_each_other() -> None:
    text = encoded(codec(NEW), Key("Secret", "a", "bc"))

    assert isinstance(codec(NEW).decode(Key("Secret", "ab", "c"), text), SealedData)


@settings(max_examples=200)
@given(st.data())
def test_a_flipped_bit_anywhere_is_noticed_or_changes_nothing(data: st.DataObject) -> None:
    text = encoded(codec(NEW))
    bit = data.draw(st.integers(0, len(text) * 8 - 1))
    flipped = bytearray(text)
    flipped[bit // 8] ^= 1 << bit % 8
    read = codec(NEW).decode(SECRET, bytes(flipped))

    assert isinstance(read, SealedData) or read == DATA


@settings(max_examples=100)
@given(st.data())
def test_a_flipped_bit_of_the_message_is_always_noticed(data: st.DataObject) -> None:
    text = encoded(codec(NEW))
    changed = bytearray(message(text))
    bit = data.draw(st.integers(0, len(changed) * 8 - 1))
    changed[bit // 8] ^= 1 << bit % 8
    state = codec(NEW, OLD).state(SECRET, with_message(text, bytes(changed)))

    assert state.reason.startswith("it is damaged")
    assert state.missing is None, "the key is there"


def test_a_truncated_text_is_noticed_wherever_it_ends() -> None:
    text = encoded(codec(NEW))
    whole = json.loads(text)
    shorter = [json.dumps(whole[:end]).encode() for end in range(len(whole))]
    unclosed = [text[:end] for end in range(len(text))]

    assert all(isinstance(codec(NEW).decode(SECRET, part), SealedData) for part in shorter + unclosed)
    assert all(codec(NEW).state(SECRET, part).reason for part in shorter + unclosed)


def test_damage_to_the_name_of_the_key_costs_nothing() -> None:
    text = encoded(codec(NEW, OLD)).replace(NEW.fingerprint.encode(), OLD.fingerprint.encode())

    assert codec(NEW, OLD).decode(SECRET, text) == DATA


def test_a_missing_key_is_named_and_another_key_of_its_id_is_not_taken_for_it() -> None:
    text = encoded(codec(OLD))
    impostor = SecretsKey("old", NEW.secret)

    for keys in ((), (NEW,), (impostor,)):
        state = codec(*keys).state(SECRET, text)
        assert state.missing == ("old", OLD.fingerprint)
        assert state.reason == f"it is encrypted with the key old ({OLD.fingerprint}), which is not configured"


def test_what_cannot_be_decrypted_is_stored_as_it_was() -> None:
    text = encoded(codec(OLD))

    assert codec(NEW).encode(SECRET, codec(NEW).decode(SECRET, text)).encode() == text


def test_only_what_is_plain_or_old_is_renewed() -> None:
    both = codec(NEW, OLD)
    plain, old, new = encoded(codec()), encoded(codec(OLD)), encoded(both)

    for text in (plain, old):
        renewed = both.renewed(SECRET, text)
        assert renewed is not None
        assert codec(NEW).decode(SECRET, renewed.encode()) == DATA
    assert both.renewed(SECRET, new) is None
    assert codec(NEW).renewed(SECRET, old) is None, "it cannot be read"
    assert both.renewed(replace(SECRET, type="MeshTimeout"), plain) is None, "it is no secret"


def test_a_key_that_took_over_an_id_renews_documents() -> None:
    successor = SecretsKey(OLD.id, NEW.secret)
    both, old = codec(successor, OLD), encoded(codec(OLD))

    assert both.state(SECRET, old).is_old
    assert not both.state(SECRET, encoded(both)).is_old
    renewed = both.renewed(SECRET, old)
    assert renewed is not None
    assert codec(successor).decode(SECRET, renewed.encode()) == DATA


# --- keys ---------------------------------------------------------------------------------------------------


def test_a_file_has_keys_on_lines_and_comments() -> None:
    bare = base64.b64encode(bytes(32)).decode()
    keys = SecretsKeys.parse(f"# keys of the mesh\n\n{NEW.line}\n  {OLD.line}  \n{bare}\n", "keys")

    assert keys.keys == (NEW, OLD, SecretsKey(fingerprint(bytes(32)), bytes(32)))
    assert keys.first == NEW


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "there is no key"),
        ("# nothing\n", "there is no key"),
        ("a:%%%", "line 1: the key is not base64"),
        (f"a:{'A' * 42}==", "line 1: the key has 31 bytes and needs 32"),
        ("a:" + base64.b64encode(bytes(16)).decode(), "line 1: the key has 16 bytes"),
        (f"{OLD.line}\n a b:{base64.b64encode(bytes(32)).decode()}", "line 2: an id has letters"),
        (f"{OLD.line}\n{OLD.line}", "twice"),
        (f"{OLD.line}\nother:{OLD.line.partition(':')[2]}", "twice"),
        (f"{OLD.line}\nold:{NEW.line.partition(':')[2]}", "twice"),
    ],
)
def test_a_faulty_file_of_keys_is_refused_and_nothing_of_it_is_shown(text: str, reason: str) -> None:
    with pytest.raises(Unusable, match=reason) as raised:
        SecretsKeys.parse(text, "keys")

    parts = [part for line in text.splitlines() for part in line.split(":") if len(part) > 10]
    assert not any(part in str(raised.value) for part in parts)


@pytest.mark.parametrize("content", [b"\xff\xfe", b"A" * 100_000])
def test_what_is_no_file_of_keys_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "keys").write_bytes(content)

    with pytest.raises(Unusable, match="this is no file of keys"):
        SecretsKeys.read(tmp_path / "keys")


def test_a_file_of_keys_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match="missing: the file of keys cannot be read: no such file or directory"):
        SecretsKeys.read(tmp_path / "missing")
    with pytest.raises(Unusable, match="ordinary file"):
        SecretsKeys.read(tmp_path)


def test_nothing_that_prints_a_key_prints_its_bytes() -> None:
    key = SecretsKey.generate()
    shown = f"{key!r} {key} {SecretsKeys((key,))!r} {codec(key)!r}"

    assert key.fingerprint in shown
    assert all(form not in shown for form in (repr(key.secret), key.secret.hex(), key.line.partition(":")[2]))


def test_keys_that_are_made_differ() -> None:
    keys = [SecretsKey.generate() for _ in range(20)]

    assert len({key.secret for key in keys}) == len({key.id for key in keys}) == 20
    assert {len(key.secret) for key in keys} == {BYTES}
    assert SecretsKeys.parse("\n".join(key.line for key in keys), "keys").keys == tuple(keys)
