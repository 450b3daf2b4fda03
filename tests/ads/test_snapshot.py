"""Versions are content, and what is shared is worked out once."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from cp.translate.packing import CLUSTER, ENDPOINTS, ROUTES, PackedResource, ResourceBatch
from cp.translate.snapshot import EMPTY, PartDifference, Snapshot, SnapshotPart
from tests.ads.content import cluster, endpoints, routes

packs = st.builds(cluster, st.sampled_from("abcd"), st.integers(0, 2))
resources = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 2)).map(
    lambda made: [cluster(name, revision) for name, revision in made.items()]
)


def cut(made: list[PackedResource], names: set[str]) -> Snapshot:
    return Snapshot(
        SnapshotPart(p for p in made if p.name in names), SnapshotPart(p for p in made if p.name not in names)
    )


@given(resources, st.sets(st.sampled_from("abcd")), st.sets(st.sampled_from("abcd")))
def test_the_version_does_not_depend_on_how_a_snapshot_is_cut(
    made: list[PackedResource], one: set[str], other: set[str]
) -> None:
    assert cut(made, one).version(CLUSTER) == cut(made, other).version(CLUSTER)
    assert cut(made, one) == cut(made, other)


@given(resources, resources)
def test_different_content_has_different_versions(one: list[PackedResource], other: list[PackedResource]) -> None:
    same = {p.name: p.version for p in one} == {p.name: p.version for p in other}

    assert (Snapshot(SnapshotPart(one)).version(CLUSTER) == Snapshot(SnapshotPart(other)).version(CLUSTER)) is same
    assert (Snapshot(SnapshotPart(one)) == Snapshot(SnapshotPart(other))) is same


@given(resources, st.integers(0, 2))
def test_a_part_with_something_new_is_what_it_would_be_if_it_were_made_anew(
    made: list[PackedResource], revision: int
) -> None:
    new = [cluster(packed.name, revision) for packed in made[:2]]

    assert Snapshot(SnapshotPart(made).updated(new)) == Snapshot(SnapshotPart([*new, *made[2:]]))


@given(resources, resources, st.sets(st.sampled_from("abcd")), st.sets(st.sampled_from("abcd")))
def test_a_difference_leads_from_one_snapshot_to_the_other(
    before: list[PackedResource], after: list[PackedResource], one: set[str], other: set[str]
) -> None:
    old, new = cut(before, one), cut(after, other)
    has = {p.name: p for p in before}

    difference = new.since(old, CLUSTER)
    assert not [p for p in difference.updated if has.get(p.name) == p]
    has |= {p.name: p for p in difference.updated}
    for name in difference.removed:
        del has[name]

    assert has == {p.name: p for p in after}


def test_what_only_moved_from_one_part_to_another_is_not_different() -> None:
    made = [cluster("a"), cluster("b")]

    assert not cut(made, {"a"}).since(cut(made, {"b"}), CLUSTER)


def test_two_that_go_the_same_way_share_the_difference() -> None:
    before, after = SnapshotPart([cluster("a")]), SnapshotPart([cluster("a", revision=1)])

    one, other = (Snapshot(after, SnapshotPart([cluster(own)])) for own in "xy")

    (step,) = one.steps(Snapshot(before, *one.parts[1:]), CLUSTER)
    (same,) = other.steps(Snapshot(before, *other.parts[1:]), CLUSTER)
    assert step is same


def test_everything_new_is_the_part_itself() -> None:
    part = SnapshotPart([cluster("a"), cluster("b")])

    (step,) = Snapshot(part).steps(EMPTY, CLUSTER)

    assert step.updated is part.whole(CLUSTER)


def test_names_that_cover_a_part_select_it_whole() -> None:
    part = SnapshotPart([endpoints("a"), endpoints("b")])
    snapshot = Snapshot(part, SnapshotPart([endpoints("c"), endpoints("d")]))

    whole, some = snapshot.select(ENDPOINTS, {"a", "b", "c", "x"})

    assert whole is part.whole(ENDPOINTS)
    assert [packed.name for packed in some] == ["c"]


def test_types_do_not_mix() -> None:
    snapshot = Snapshot(SnapshotPart([cluster("a"), endpoints("a"), routes("b")]))

    assert list(snapshot.names(CLUSTER)) == ["a"]
    assert snapshot.get(ROUTES, "a") is None
    assert (snapshot.count(CLUSTER), len(snapshot)) == (1, 3)


def test_nothing_differs_from_itself() -> None:
    snapshot = Snapshot(SnapshotPart([cluster("a")]))

    assert snapshot.since(snapshot, CLUSTER) == PartDifference()
    assert snapshot != "something else"


def test_frames_of_parts_stand_side_by_side() -> None:
    assert cut([cluster("a"), cluster("b")], {"a"}).frames(CLUSTER) == cluster("a").frame + cluster("b").frame


class Changing(dict[str, ResourceBatch]):
    """As a dictionary is to which somebody else adds something right now."""

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("dictionary changed size during iteration")

    items = keys = values = __iter__  # type: ignore[assignment]


def test_a_part_can_have_a_successor_while_streams_put_together_what_it_has() -> None:
    part = SnapshotPart([cluster("a"), endpoints("a")])
    together = part.whole(ENDPOINTS)
    part._whole = Changing(part._whole.copy())

    after = part.updated([cluster("a", 1)])

    assert after.whole(ENDPOINTS) is together
    assert list(after.whole(CLUSTER)) == [cluster("a", 1)]


def test_active_version_is_that_of_sent_clusters() -> None:
    """A cluster that is sent with earlier options is not the one that the next process would send."""
    made, sent, draining = (
        SnapshotPart([cluster(name, revision)]) for name, revision in (("a", 1), ("a", 0), ("b", 0))
    )

    kept = Snapshot(made, draining=(draining,), sent_parts=(sent,))

    assert kept.active_version(CLUSTER) == Snapshot(sent).version(CLUSTER) != Snapshot(made).version(CLUSTER)
