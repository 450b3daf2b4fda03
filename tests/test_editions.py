"""What was published when, and to whom."""

from __future__ import annotations

from cp.model.names import Key
from cp.serving.publications import KEPT, Publication, PublicationLog

A, B, C = (Key("MeshTimeout", "default", name) for name in "abc")


def edition(since: int, revision: int, *proxies: str, changed: tuple[Key, ...] = (), at: float = 0.0) -> Publication:
    return Publication(since, revision, at, frozenset(proxies), frozenset(changed))


def editions(*some: Publication) -> PublicationLog:
    found = PublicationLog()
    for one in some:
        found.add(one)
    return found


def test_a_revision_concerns_those_who_were_given_something_when_it_was_published() -> None:
    known = editions(edition(0, 2, "x", at=1.0), edition(2, 3, "y", at=2.0), edition(3, 4))

    assert known.reach([1]).proxies == known.reach([2]).proxies == {"x"}
    assert known.reach([3, 2]).proxies == {"x", "y"}
    assert known.reach([2, 3]).at == 1.0
    assert not known.reach([4]).proxies
    assert not known.reach([]).proxies


def test_what_is_too_long_ago_is_not_known() -> None:
    known = editions(*(edition(number, number + 1, "x") for number in range(KEPT + 1)))

    assert not known.reach([1]).is_known
    assert known.reach([2]).is_known
    assert not known.reach([KEPT + 2]).is_known


def test_where_the_store_forgot_the_changes_anybody_may_be_concerned() -> None:
    whole = Publication(0, 9, 0.0, frozenset({"x"}), is_whole=False)

    assert not editions(whole).reach([5]).is_known


def test_suspect_is_what_was_changed_just_before_the_trouble_and_then_what_was_changed_since() -> None:
    known = editions(
        edition(0, 1, "x", changed=(A,), at=1.0),
        edition(1, 2, "x", changed=(B,), at=2.0),
        edition(2, 3, "y", changed=(A,), at=3.0),
        edition(3, 4, "x", changed=(C,), at=4.0),
    )

    assert known.suspects("x", since=2.5) == (frozenset({B}), frozenset({C}))
    assert known.suspects("y", since=2.5) == (frozenset({A}),)
    assert known.suspects("z", since=2.5) == ()
