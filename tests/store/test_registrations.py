"""The budget of registrations in the log: proxies that come and go take no place of people's writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cp.model.document import Document
from cp.model.names import Key
from cp.store.past import recent_past
from cp.store.port import Author, Delete, HistoryLimits, Outdated, Put, Store
from cp.store.registrations import (
    OF_DATAPLANE,
    OF_DATAPLANE_BYTES,
    LoggedRegistration,
    RegistrationMerge,
    RegistrationTally,
    cut,
    merge_for,
    shares,
)
from tests.store.harness import WRITABLE, changes, key, next_batch, opened, put, run

PROXY = Author("proxy web", "PUT from 192.0.2.7")
SWEEP = Author("control plane", "registrations")
PERSON = Author("anna", "apply from 192.0.2.9")


def dataplane(name: str, value: Any = 0, mesh: str = "default") -> Put:
    data = {"type": "Dataplane", "mesh": mesh, "name": name, "value": value}
    return Put(Document(Key("Dataplane", mesh, name), data))


def value_of(document: Document | None) -> Any:
    return None if document is None else document.data["value"]


async def states(store: Store, revision: int) -> dict[str, Any]:
    """Return the values of all Dataplanes as they were at a revision."""
    past = await recent_past(store, await store.read(), revision)
    documents = past.at(revision).documents.items()
    return {key.name: value_of(document) for key, document in documents if key.type == "Dataplane"}


@pytest.mark.parametrize("kind", WRITABLE)
def test_registrations_take_no_place_of_people(kind: str, tmp_path: Path) -> None:
    limits = HistoryLimits(kept=5, kept_bytes=5_000)

    async def scenario() -> None:
        async with opened(kind, tmp_path, limits=limits) as store:
            seventh = await store.write(put("a", 1), author=PERSON)
            for value in range(100):
                await store.write(dataplane("web", f"{value:04}" * 100), author=PROXY)
            await store.write(put("a", 2), author=PERSON)
            assert await store.oldest() <= seventh
            of_person = [change.revision for change in await store.log(key("a"))]
            assert of_person == [102, seventh]
            past = (await recent_past(store, await store.read(), seventh)).at(seventh)
            assert past.documents[key("a")].data["spec"] == {"value": 1}
            assert len(await store.log(limit=1000)) <= OF_DATAPLANE + 2

    run(scenario())


@pytest.mark.parametrize("kind", WRITABLE)
def test_merged_registrations_lead_to_the_same_documents(kind: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(kind, tmp_path) as store:
            for value in range(OF_DATAPLANE + 1):
                await store.write(dataplane("web", value), author=PROXY)
            by_person = await store.write(dataplane("web", "mine"), author=PERSON)
            for value in range(3 * OF_DATAPLANE):
                await store.write(dataplane("web", value) if value % 5 else Delete(dataplane("web").key), author=PROXY)
            assert await states(store, await store.oldest()) == {}
            assert await states(store, by_person) == {"web": "mine"}
            assert await states(store, by_person - 1) == {"web": OF_DATAPLANE}
            log = await store.history(dataplane("web").key, limit=1000)
            assert len(log) <= 2 * OF_DATAPLANE
            chain = [(value_of(change.before), value_of(change.after)) for change in reversed(log)]
            assert [after for _, after in chain[:-1]] == [before for before, _ in chain[1:]]
            newest = await store.revision()
            for since in range(await store.oldest(), newest):
                batch = await changes(store, since, until=newest)
                assert value_of(batch[-1].after) == 3 * OF_DATAPLANE - 1

    run(scenario())


@pytest.mark.parametrize("kind", WRITABLE)
def test_a_dataplane_that_came_and_went_leaves_nothing(kind: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(kind, tmp_path) as store:
            for value in range(50):
                await store.write(dataplane("web", value), author=PROXY)
                await store.write(Delete(dataplane("web").key), author=SWEEP)
            log = await store.history(limit=1000)
            assert len(log) <= OF_DATAPLANE
            assert await states(store, await store.oldest()) == {}
            assert await store.write(put("a", 1)) == 101

    run(scenario())


@pytest.mark.parametrize("kind", WRITABLE)
def test_a_mesh_with_many_registrations_loses_its_own(kind: str, tmp_path: Path) -> None:
    limits = HistoryLimits(kept_registrations=40)

    async def scenario() -> None:
        async with opened(kind, tmp_path, limits=limits) as store:
            by_person = await store.write(put("a", 1), author=PERSON)
            for index in range(5):
                await store.write(dataplane(f"quiet-{index}", 0, "quiet"), author=PROXY)
            for index in range(100):
                await store.write(dataplane(f"web-{index}", 0), author=PROXY)
            log = await store.log(limit=1000)
            meshes = [change.key.mesh for change in log if change.key.type == "Dataplane"]
            assert (meshes.count("quiet"), meshes.count("default")) == (5, 35)
            assert [change.revision for change in log if change.key.type != "Dataplane"] == [by_person]
            assert await store.oldest() <= by_person
            newest, [forgotten] = await store.revision(), {106 - 35}
            assert [change.revision for change in await changes(store, forgotten, until=newest)] == [*range(72, 107)]
            with pytest.raises(Outdated, match=f"revisions {forgotten} to {newest}, not from {forgotten - 1}"):
                await next_batch(store, forgotten - 1)

    run(scenario())


@pytest.mark.parametrize("kind", WRITABLE)
def test_registrations_have_a_size_too(kind: str, tmp_path: Path) -> None:
    limits = HistoryLimits(kept_registrations=64, kept_registration_bytes=20_000)

    async def scenario() -> None:
        async with opened(kind, tmp_path, limits=limits) as store:
            await store.write(put("a", 1), author=PERSON)
            for index in range(60):
                await store.write(dataplane(f"web-{index}", "x" * 1000), author=PROXY)
            of_proxies = [change for change in await store.log(limit=1000) if change.key.type == "Dataplane"]
            assert 5 <= len(of_proxies) <= 20
            assert len(await store.log(key("a"))) == 1

    run(scenario())


@pytest.mark.parametrize("kind", WRITABLE)
def test_a_write_of_people_counts_whatever_it_writes(kind: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(kind, tmp_path, limits=HistoryLimits(kept=3)) as store:
            for value in range(10):
                await store.write(dataplane("web", value), author=PERSON)
            assert [change.revision for change in await store.log()] == [10, 9, 8]
            await store.write(dataplane("web", "by proxy"), author=PROXY)
            assert [change.revision for change in await store.log()] == [11, 10, 9, 8]
            assert await store.write(dataplane("new"), author=PERSON) == 12
            assert [change.revision for change in await store.log()] == [12, 11, 10, 9]

    run(scenario())


def test_few_registrations_are_not_merged() -> None:
    assert merge_for([LoggedRegistration(2, OF_DATAPLANE_BYTES), LoggedRegistration(1, OF_DATAPLANE_BYTES)]) is None
    assert merge_for([LoggedRegistration(9 - index, 1) for index in range(9)]) is None


def test_registrations_are_merged_by_number_and_size() -> None:
    many = [LoggedRegistration(100 - index, 1) for index in range(OF_DATAPLANE + 1)]
    large = [LoggedRegistration(3 - index, OF_DATAPLANE_BYTES // 2) for index in range(3)]

    assert merge_for(many) == RegistrationMerge(first=84, target=92)
    assert merge_for(large) == RegistrationMerge(first=1, target=2)


def test_meshes_share_the_budget_of_registrations() -> None:
    limits = HistoryLimits(kept_registrations=100, kept_registration_bytes=1000)
    tallies = {"a": RegistrationTally(10, 10), "b": RegistrationTally(80, 10), "c": RegistrationTally(90, 10)}

    assert shares(tallies, limits) == dict.fromkeys(("b", "c"), RegistrationTally(45, 1000))
    assert shares({"a": RegistrationTally(100, 1000)}, limits) == {}
    assert cut([LoggedRegistration(revision, 10) for revision in (9, 7, 4)], RegistrationTally(45, 20)) == 4
