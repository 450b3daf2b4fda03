"""Every message between workers keeps what it stands for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cp.ads.connection import ConnectionRecord
from cp.ads.session.messages import Nack, NackedResource, Node, ResponseCounts, TypeStatus
from cp.identity.leaf import Certificate
from cp.model.envoy_questions import EnvoyQuestion, EnvoySubject
from cp.model.names import Key
from cp.model.violation import Finding, Severity
from cp.serving.delivery import (
    ChangeProgress,
    ChangeReach,
    Delivery,
    FleetDelta,
    NackReport,
    PolicyPart,
    Presence,
    ProxyState,
    ProxyStatus,
    StandingNack,
)
from cp.serving.delivery.delivery import StreamDelivery, TypeDelivery
from cp.serving.workers import messages
from cp.serving.workers.messages import from_message, to_message
from cp.settings import Settings
from koguma.v1 import workers_pb2 as pb

CLASSES = (
    Certificate,
    *(Key, Finding, Node, ResponseCounts, Nack, NackedResource, TypeStatus, ConnectionRecord, Presence, PolicyPart),
    EnvoyQuestion,
    *(NackReport, StandingNack, TypeDelivery, StreamDelivery, Delivery, ChangeProgress),
    *(ProxyStatus, FleetDelta, ChangeReach),
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
NUMBERS = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(allow_nan=False)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | FINITE | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)
METADATA = st.dictionaries(TEXT, JSON, max_size=2)

st.register_type_strategy(Mapping, METADATA)


def values(class_: type) -> st.SearchStrategy[Any]:
    """Values of a dataclass with whatever its fields may hold."""
    hints = dict(messages._fields(class_))
    return st.builds(class_, **{name: _contents(hint) for name, hint in hints.items()})


def _contents(hint: Any) -> st.SearchStrategy[Any]:
    simple: dict[Any, st.SearchStrategy[Any]] = {
        str: TEXT,
        int: NUMBERS,
        float: FLOATS,
        bool: st.booleans(),
        Severity: st.sampled_from(Severity),
        ProxyState: st.sampled_from(ProxyState),
        EnvoySubject: st.sampled_from(EnvoySubject),
    }
    if hint in simple:
        return simple[hint]
    if is_dataclass(hint):
        return values(hint)  # type: ignore[arg-type]  # a class, not an instance
    arguments = hint.__args__
    if hint == arguments[0] | None:
        return st.none() | _contents(arguments[0])
    if hint.__origin__ is tuple:
        return st.lists(_contents(arguments[0]), max_size=2).map(tuple)
    assert hint.__origin__ is Mapping
    return METADATA


def sent(message: Any) -> Any:
    """What arrives at the other end."""
    return type(message).FromString(message.SerializeToString())


@pytest.mark.parametrize("class_", CLASSES, ids=lambda class_: class_.__name__)
@given(data=st.data())
def test_a_value_arrives_as_it_was_sent(class_: type, data: st.DataObject) -> None:
    value = data.draw(values(class_))

    assert from_message(sent(to_message(value)), class_) == value


@given(st.dictionaries(values(Key), values(Presence), max_size=3))
def test_presences_arrive_as_they_were_sent(presences: dict[Key, Presence]) -> None:
    assert messages.presences_of(sent(messages.presences_message(presences))) == presences


@given(st.dictionaries(TEXT, st.frozensets(TEXT, max_size=3), max_size=3))
def test_owners_arrive_as_they_were_sent(owners: dict[str, frozenset[str]]) -> None:
    assert messages.owners_of(sent(messages.owners_message(owners))) == owners


@given(st.lists(values(NackReport), max_size=3))
def test_reports_of_nacks_arrive_as_they_were_sent(reports: list[NackReport]) -> None:
    assert messages.nack_reports_of(sent(messages.nack_reports_message(reports))) == reports


@given(st.lists(values(Key), max_size=3))
def test_keys_arrive_as_they_were_sent(keys: list[Key]) -> None:
    assert messages.keys_of(sent(messages.keys_message(keys)).keys) == keys


@given(st.text(max_size=20))
def test_an_error_arrives_whatever_characters_its_text_has(text: str) -> None:
    error = messages.error_of(sent(messages.error_message(ValueError(text))))

    assert error.type == "ValueError"
    assert error.text == text.encode(errors="backslashreplace").decode()


PORTS = st.integers(0, 65535)
SIZES = st.integers(1024 * 1024, 2**63 - 1)
SIZES_IN_A_STORE = st.integers(1024 * 1024, 10**15)
SECONDS = st.floats(0.001, 10)


@given(
    st.builds(
        Settings,
        work_dir=TEXT.map(Path),
        store=TEXT.filter(lambda store: store != "memory:"),
        bind=TEXT,
        http_bind=TEXT,
        api_hosts=TEXT,
        xds_host=st.sampled_from(["", "cp.example", "cp-1.example, [::1]:5679"]),
        secrets_key=TEXT,
        secrets_key_file=TEXT,
        admin_address=TEXT,
        store_type=st.sampled_from(["sqlite", "memory"]),
        policy_engine=st.sampled_from(["TargetRef", "Legacy"]),
        log_level=st.sampled_from(["debug", "error"]),
        log_format=st.sampled_from(["auto", "json"]),
        workers=st.integers(1, 64),
        checks_itself=st.booleans(),
        read_only=st.booleans(),
        skip_mesh_creation=st.booleans(),
        admin_unix_socket=st.booleans(),
        **dict.fromkeys(("ads_port", "http_port", "diagnostics_port", "xds_port", "admin_port"), PORTS),
        **dict.fromkeys(
            (
                "most_streams",
                "most_streams_of_address",
                "most_streams_of_proxy",
                "most_bytes_of_proxy",
                "request_limit",
                "most_unknown",
                "body_limit",
            ),
            SIZES,
        ),
        **dict.fromkeys(
            ("history_bytes", "history_revisions", "history_registrations", "history_registration_bytes"),
            SIZES_IN_A_STORE,
        ),
        **dict.fromkeys(
            ("history_age", "stream_age", "drain", "deregistration_delay", "return_grace", "quiet", "at_most"), SECONDS
        ),
    )
)
def test_settings_arrive_as_they_were_sent(settings: Settings) -> None:
    assert messages.settings_of(sent(messages.settings_message(settings))) == settings


def test_a_folder_of_files_with_registrations_beside_it_arrives() -> None:
    settings = Settings(store="dir:/meshes", registrations="memory:")

    assert messages.settings_of(sent(messages.settings_message(settings))) == settings


def test_a_certificate_arrives() -> None:
    settings = Settings(tls_certificate=Path("/a.crt"), tls_key=Path("/a.key"))

    assert messages.settings_of(sent(messages.settings_message(settings))) == settings


def test_a_file_with_public_keys_arrives() -> None:
    settings = Settings(token_public_keys=Path("/keys.yaml"), makes_admin_token=False)

    assert messages.settings_of(sent(messages.settings_message(settings))) == settings


def test_settings_that_cannot_be_are_invalid_at_the_other_end_too() -> None:
    message = messages.settings_message(Settings())
    message.ads_port = 70000

    with pytest.raises(ValueError, match="less than or equal to 65535"):
        messages.settings_of(message)


def test_every_message_of_a_class_has_its_fields_and_no_others() -> None:
    for class_ in CLASSES:
        names = {field.name for field in getattr(pb, class_.__name__).DESCRIPTOR.fields}
        assert names == {name for name, _ in messages._fields(class_)}, class_
    assert {field.name for field in pb.Settings.DESCRIPTOR.fields} == set(Settings.model_fields)


def test_every_question_has_an_answer_of_its_name() -> None:
    questions = pb.Request.DESCRIPTOR.oneofs_by_name["question"].fields
    answers = pb.Answer.DESCRIPTOR.oneofs_by_name["answer"].fields

    assert [field.name for field in questions] == [field.name for field in answers]
