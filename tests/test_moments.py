"""Moments as documents have them."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cp.model.moments import moment, timestamp
from cp.model.source import creation_time, read_documents

MOMENTS = st.datetimes(min_value=datetime(2, 1, 2), max_value=datetime(9999, 12, 30), timezones=st.just(UTC))  # noqa: DTZ001  # hypothesis adds the zone


@given(MOMENTS, MOMENTS)
def test_texts_compare_as_the_moments_do(one: datetime, other: datetime) -> None:
    assert (timestamp(one) < timestamp(other)) == (one < other)
    assert moment(timestamp(one)) == one


@pytest.mark.parametrize(
    "text",
    [
        "2024-06-01T10:00:00.25Z",
        "2024-06-01T12:00:00.250+02:00",
        "2024-06-01T10:00:00.250000999Z",
        "2024-06-01T10:00:00.25",
    ],
)
def test_one_moment_has_many_spellings_and_is_kept_in_one(text: str) -> None:
    found = moment(text)

    assert found is not None
    assert timestamp(found) == "2024-06-01T10:00:00.250000Z"
    assert timestamp(found.astimezone(timezone(timedelta(hours=9)))) == timestamp(found)


@pytest.mark.parametrize(
    "text",
    ["0001-01-01T00:00:00Z", "0001-01-01T00:00:00-02:00", "9999-12-31T23:59:59-02:00", "yesterday", "", None, 12, []],
)
def test_what_names_no_moment_is_none(text: object) -> None:
    assert moment(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "{type: Mesh, name: a, creationTime: 2024-06-01T10:00:00Z}",
        "{apiVersion: kuma.io/v1alpha1, kind: Mesh, metadata: {name: a, creationTimestamp: 2024-06-01T10:00:00Z}}",
    ],
)
def test_documents_of_either_form_say_when_they_were_made(text: str) -> None:
    (document,) = read_documents(text).documents

    assert document.source.created == "2024-06-01T10:00:00.000000Z"
    assert document.data == {"type": "Mesh", "name": "a"}


def test_a_document_need_not_say_when_it_was_made() -> None:
    assert not creation_time({"type": "Mesh", "name": "a"})
    assert not creation_time({"type": "Mesh", "name": "a", "metadata": "none"})
