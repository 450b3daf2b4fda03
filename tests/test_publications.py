"""What was published when, and to whom."""

from __future__ import annotations

from cp.model.names import Key
from cp.serving.publications import KEPT, Publication, PublicationLog

A, B, C = (Key("MeshTimeout", "default", name) for name in "abc")


def publication(
    previous_revision: int, revision: int, *proxies: str, changed: tuple[Key, ...] = (), at: float = 0.0
) -> Publication:
    return Publication(previous_revision, revision, at, frozenset(proxies), frozenset(changed))


def log_of(*publications: Publication) -> PublicationLog:
    log = PublicationLog()
    for entry in publications:
        log.add(entry)
    return log


def test_a_revision_concerns_the_proxies_that_its_publication_gave_something_new() -> None:
    log = log_of(publication(0, 2, "x", at=1.0), publication(2, 3, "y", at=2.0), publication(3, 4))

    assert log.audience([1]).proxies == log.audience([2]).proxies == {"x"}
    assert log.audience([3, 2]).proxies == {"x", "y"}
    assert log.audience([2, 3]).at == 1.0
    assert not log.audience([4]).proxies
    assert not log.audience([]).proxies


def test_the_audience_of_a_revision_that_is_too_long_ago_is_unknown() -> None:
    log = log_of(*(publication(number, number + 1, "x") for number in range(KEPT + 1)))

    assert not log.audience([1]).is_known
    assert log.audience([2]).is_known
    assert not log.audience([KEPT + 2]).is_known


def test_the_audience_is_unknown_if_the_store_forgot_the_changes() -> None:
    of_everything = Publication(0, 9, 0.0, frozenset({"x"}), is_whole=False)

    assert not log_of(of_everything).audience([5]).is_known


def test_suspected_are_the_last_change_before_a_nack_and_then_each_later_one() -> None:
    log = log_of(
        publication(0, 1, "x", changed=(A,), at=1.0),
        publication(1, 2, "x", changed=(B,), at=2.0),
        publication(2, 3, "y", changed=(A,), at=3.0),
        publication(3, 4, "x", changed=(C,), at=4.0),
    )

    assert log.suspected_changes("x", nacked_since=2.5) == (frozenset({B}), frozenset({C}))
    assert log.suspected_changes("y", nacked_since=2.5) == (frozenset({A}),)
    assert log.suspected_changes("z", nacked_since=2.5) == ()
