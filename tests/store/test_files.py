"""What the store of files makes of what people and tools do to a directory."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cp.model.names import Key
from cp.model.source import FileReading, read_documents
from cp.model.violation import Finding, Severity
from cp.store.files import FilesStore
from cp.store.folder import LARGEST, Folder, FolderEdit, FolderFile, Parse
from cp.store.port import ChangeBatch, Contents, Put, ReadOnly, Unusable
from cp.store.tree import FileSignature
from tests.store.harness import NEVER, contained, delete, document, held, key, next_batch, put, run, until


def text(*documents: tuple[str, Any]) -> str:
    return "---\n".join(
        f"type: MeshTimeout\nmesh: default\nname: {name}\nspec:\n  value: {value}\n" for name, value in documents
    )


@asynccontextmanager
async def files(root: Path, parse: Parse = read_documents, backstop: float = NEVER) -> AsyncIterator[FilesStore]:
    store = await FilesStore.open(root, parse, backstop=backstop)
    try:
        yield store
    finally:
        await store.close()


def values(contents: Contents) -> dict[str, Any]:
    return {key.name: document.data["spec"]["value"] for key, document in contained(contents).items()}


async def becomes(store: FilesStore, **wanted: Any) -> Contents:
    """Wait until exactly these documents are in force."""
    await until(store, lambda contents: values(contents) == wanted)
    return await store.read()


async def found(store: FilesStore, code: str) -> tuple[Finding, Contents]:
    """Wait until there is one finding, and that one."""
    await until(store, lambda contents: [finding.code for finding in contents.findings] == [code])
    contents = await store.read()
    return contents.findings[0], contents


async def mended(store: FilesStore, **wanted: Any) -> None:
    await until(store, lambda contents: values(contents) == wanted and contents.findings == ())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "mesh"
    root.mkdir()
    return root


def move(path: Path, name: str) -> None:
    path.rename(path.with_name(name))


# --- what is read ---------------------------------------------------------------------------------------------


def test_files_of_all_three_kinds_are_read_at_any_depth_with_many_documents_each(root: Path) -> None:
    (root / "deep" / "deeper").mkdir(parents=True)
    (root / "a.yaml").write_text(text(("a", 1), ("b", 2)))
    (root / "deep" / "c.yml").write_text(text(("c", 3)))
    (root / "deep" / "deeper" / "D.JSON").write_text('{"type": "MeshTimeout", "name": "d", "spec": {"value": 4}}')
    (root / "README.md").write_text(text(("e", 5)))

    async def scenario() -> None:
        async with files(root) as store:
            contents = await store.read()
            assert values(contents) == {"a": 1, "b": 2, "c": 3, "d": 4}
            assert (contents.revision, contents.findings) == (1, ())
            second = contained(contents)[key("b")].source
            assert (second.file, second.line(""), second.line("spec.value")) == (str(root / "a.yaml"), 7, 11)

    run(scenario())


def test_hidden_files_and_directories_are_passed_over(root: Path) -> None:
    (root / ".git").mkdir()
    (root / ".git" / "a.yaml").write_text(text(("a", 1)))
    (root / ".b.yaml.swp").write_text("not: [yaml")
    (root / ".b.yaml").write_text(text(("b", 1)))
    (root / "c.yaml").write_text(text(("c", 1)))

    async def scenario() -> None:
        async with files(root) as store:
            assert values(await store.read()) == {"c": 1}
            assert (await store.read()).findings == ()

    run(scenario())


def test_a_byte_order_mark_is_no_part_of_the_text(root: Path) -> None:
    (root / "a.yaml").write_bytes(b"\xef\xbb\xbf" + text(("a", 1)).encode())

    async def scenario() -> None:
        async with files(root) as store:
            assert values(await store.read()) == {"a": 1}

    run(scenario())


def test_what_is_no_directory_cannot_be_opened(root: Path) -> None:
    (root / "file").touch()
    for path, fault in ((root / "file", "is a file"), (root / "nothing", "there is no such folder; make it")):
        with pytest.raises(Unusable, match=f"{path}: {fault}"):
            run(FilesStore.open(path, read_documents))


# --- what people and tools do -----------------------------------------------------------------------------------


def test_a_file_that_is_written_in_place(root: Path) -> None:
    (root / "a.yaml").write_text(text(("a", 1)))

    async def scenario() -> None:
        async with files(root) as store:
            for value in range(2, 6):
                (root / "a.yaml").write_text(text(("a", value)))
                batch = await next_batch(store, value - 1)
                assert [change.after and change.after.data["spec"]["value"] for change in batch.changes] == [value]
                assert batch.revision == value

    run(scenario())


def test_a_file_that_is_saved_by_renaming(root: Path) -> None:
    (root / "a.yaml").write_text(text(("a", 1)))

    async def scenario() -> None:
        async with files(root) as store:
            for value in range(2, 6):
                (root / "a.yaml.new").write_text(text(("a", value)))
                (root / "a.yaml.new").rename(root / "a.yaml")
                [change] = (await next_batch(store, value - 1)).changes
                assert change.before is not None
                assert change.after is not None
                assert change.after.data["spec"]["value"] == value

    run(scenario())


def test_a_file_that_is_moved_away_and_written_anew(root: Path) -> None:
    """As vim does with a backup: nobody should see that for a moment it was not there."""
    (root / "a.yaml").write_text(text(("a", 1)))

    async def scenario() -> None:
        async with files(root) as store:
            (root / "a.yaml").rename(root / "a.yaml~")
            (root / "a.yaml").write_text(text(("a", 2)))
            (root / "a.yaml~").unlink()
            [change] = (await next_batch(store, 1)).changes
            assert change.after is not None
            assert change.after.data["spec"]["value"] == 2

    run(scenario())


def test_files_that_are_added_and_removed(root: Path) -> None:
    async def scenario() -> None:
        async with files(root) as store:
            (root / "a.yaml").write_text(text(("a", 1)))
            await becomes(store, a=1)
            (root / "b.yaml").write_text(text(("b", 2)))
            await becomes(store, a=1, b=2)
            (root / "a.yaml").unlink()
            await becomes(store, b=2)
            assert (await store.history(key("a")))[0].after is None

    run(scenario())


def test_directories_that_are_added_filled_and_removed(root: Path) -> None:
    async def scenario() -> None:
        async with files(root) as store:
            (root / "new" / "newer").mkdir(parents=True)
            (root / "new" / "newer" / "a.yaml").write_text(text(("a", 1)))
            await becomes(store, a=1)
            (root / "new" / "newer" / "a.yaml").write_text(text(("a", 2)))
            await becomes(store, a=2)
            (root / "new" / "newer" / "newest").mkdir()
            (root / "new" / "newer" / "newest" / "b.yaml").write_text(text(("b", 1)))
            await becomes(store, a=2, b=1)
            shutil.rmtree(root / "new")
            await becomes(store)

    run(scenario())


def test_a_document_taken_out_of_a_file_is_gone(root: Path) -> None:
    (root / "a.yaml").write_text(text(("a", 1), ("b", 1)))

    async def scenario() -> None:
        async with files(root) as store:
            (root / "a.yaml").write_text(text(("b", 1)))
            await becomes(store, b=1)

    run(scenario())


def test_a_file_that_only_moved_changes_nothing_but_where_it_stands(root: Path) -> None:
    (root / "a.yaml").write_text(text(("a", 1)))

    async def scenario() -> None:
        async with files(root) as store:
            (root / "a.yaml").rename(root / "b.yaml")
            [change] = (await next_batch(store, 1)).changes
            assert change.before is not None
            assert change.after is not None
            assert change.before == change.after
            assert change.after.source.file == str(root / "b.yaml")

    run(scenario())


def test_a_document_in_a_file_says_itself_when_it_was_made(root: Path) -> None:
    """So every control plane that reads the folder takes the same one for the newest, and after a restart too."""

    def made(name: str, created: str) -> str:
        return f"creationTime: {created}\n{text((name, 1))}---\n"

    (root / "a.yaml").write_text(made("a", "2024-06-01T10:00:00Z") + text(("b", 1)))

    async def scenario() -> None:
        async with files(root) as store:
            assert [one.document.source.created for one in (await store.read()).stored] == [
                "2024-06-01T10:00:00.000000Z",
                "",
            ]
            (root / "a.yaml").write_text(made("a", "2024-06-01T11:00:00Z") + text(("b", 1)))
            [change] = (await next_batch(store, 1)).changes
            assert change.after is not None
            assert (change.key, change.after.source.created) == (key("a"), "2024-06-01T11:00:00.000000Z")
            assert (await held(store, "a")).created == datetime(2024, 6, 1, 11, tzinfo=UTC)

    run(scenario())


def test_a_file_that_is_touched_changes_nothing(root: Path) -> None:
    (root / "a.yaml").write_text(text(("a", 1)))

    async def scenario() -> None:
        async with files(root) as store:
            (root / "a.yaml").touch()
            (root / "a.yaml").write_text(text(("a", 1)))
            (root / "b.yaml").write_text(text(("b", 1)))
            batch = await next_batch(store, 1)
            assert (batch.revision, [change.key for change in batch.changes]) == (2, [key("b")])

    run(scenario())


# --- links ------------------------------------------------------------------------------------------------------


def config_map(root: Path, version: str, **contents: str) -> None:
    """Do as the kubelet does: a hidden directory for each version, a link to it that is swapped, links through that."""
    (root / f"..{version}").mkdir()
    for name, content in contents.items():
        (root / f"..{version}" / f"{name}.yaml").write_text(content)
    before = (root / "..data").resolve() if (root / "..data").is_symlink() else None
    (root / "..data_tmp").symlink_to(f"..{version}")
    (root / "..data_tmp").rename(root / "..data")
    for name in contents:
        if not (root / f"{name}.yaml").is_symlink():
            (root / f"{name}.yaml").symlink_to(f"..data/{name}.yaml")
    for link in root.glob("*.yaml"):
        if link.stem not in contents:
            link.unlink()
    if before is not None:
        shutil.rmtree(before)


def test_a_config_map_that_is_swapped(root: Path) -> None:
    config_map(root, "1", a=text(("a", 1)), b=text(("b", 1)))

    async def scenario() -> None:
        async with files(root) as store:
            assert values(await store.read()) == {"a": 1, "b": 1}
            config_map(root, "2", a=text(("a", 2)), b=text(("b", 1)))
            assert (await becomes(store, a=2, b=1)).findings == ()
            config_map(root, "3", b=text(("b", 3)), c=text(("c", 3)))
            assert (await becomes(store, b=3, c=3)).findings == ()
            config_map(root, "4", b=text(("b", 4)), c=text(("c", 4)))
            batch = await next_batch(store, (await becomes(store, b=4, c=4)).revision - 1)
            assert {change.key.name for change in batch.changes} == {"b", "c"}

    run(scenario())


def test_a_root_that_is_itself_a_link_that_is_swapped(tmp_path: Path) -> None:
    """As git-sync does."""
    for version in (1, 2, 3):
        (tmp_path / f"v{version}").mkdir()
        (tmp_path / f"v{version}" / "a.yaml").write_text(text(("a", version)))
    link = tmp_path / "current"
    link.symlink_to("v1")

    async def scenario() -> None:
        async with files(link) as store:
            for version in (2, 3):
                (tmp_path / "next").symlink_to(f"v{version}")
                (tmp_path / "next").rename(link)
                await becomes(store, a=version)
            (tmp_path / "v3" / "a.yaml").write_text(text(("a", 4)))
            await becomes(store, a=4)

    run(scenario())


def test_a_link_to_a_file_elsewhere_is_followed_there(root: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    target = tmp_path / "elsewhere" / "a.yaml"
    target.write_text(text(("a", 1)))
    (root / "a.yaml").symlink_to(target)

    async def scenario() -> None:
        async with files(root) as store:
            target.write_text(text(("a", 2)))
            await becomes(store, a=2)

    run(scenario())


def test_links_that_lead_in_circles_are_followed_once(root: Path) -> None:
    (root / "below").mkdir()
    (root / "below" / "a.yaml").write_text(text(("a", 1)))
    (root / "below" / "up").symlink_to(root)

    async def scenario() -> None:
        async with files(root) as store:
            contents = await store.read()
            assert (values(contents), contents.findings) == ({"a": 1}, ())

    run(scenario())


def test_a_link_that_leads_nowhere_keeps_what_was_there(root: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / "a.yaml").write_text(text(("a", 1)))
    (root / "below").symlink_to(target)

    async def scenario() -> None:
        async with files(root) as store:
            target.rename(tmp_path / "away")
            finding, contents = await found(store, "unreadable-file")
            assert values(contents) == {"a": 1}
            assert str(finding) == (
                f"{root / 'below'}: cannot be read: the link leads nowhere;"
                " until this is mended, what was last good stays in force"
            )
            (tmp_path / "away").rename(target)
            (target / "a.yaml").write_text(text(("a", 2)))
            await mended(store, a=2)
            target.rename(tmp_path / "away")
            await found(store, "unreadable-file")
            (root / "below").unlink()
            await mended(store)

    run(scenario())


# --- what goes wrong ----------------------------------------------------------------------------------------------


def test_a_broken_file_keeps_what_was_good_and_says_where_it_is_broken(root: Path) -> None:
    (root / "a.yaml").write_text(text(("a", 1), ("b", 1)))
    (root / "c.yaml").write_text(text(("c", 1)))

    async def scenario() -> None:
        async with files(root) as store:
            (root / "a.yaml").write_text(text(("a", 2)) + "---\ntype: [\n")
            (root / "c.yaml").write_text(text(("c", 2)))
            finding, _ = await found(store, "not-yaml")
            await becomes(store, a=1, b=1, c=2)
            assert (finding.severity, finding.file) == (Severity.ERROR, str(root / "a.yaml"))
            assert finding.line in (7, 8)
            assert finding.hint == "until this is mended, what was last good stays in force"
            (root / "a.yaml").write_text(text(("a", 3)))
            await mended(store, a=3, c=2)

    run(scenario())


def test_findings_alone_are_told_to_followers(root: Path) -> None:
    (root / "a.yaml").write_text(text(("a", 1)))

    async def scenario() -> tuple[ChangeBatch, ChangeBatch]:
        async with files(root) as store:
            following = store.follow(1)
            (root / "a.yaml").write_text("type: [")
            broken = await anext(following)
            (root / "a.yaml").write_text(text(("a", 1)))
            return broken, await anext(following)

    broken, whole = run(scenario())
    assert (broken.revision, broken.changes, [finding.code for finding in broken.findings]) == (2, (), ["not-yaml"])
    assert (whole.revision, whole.changes, whole.findings) == (3, (), ())


def test_a_file_that_is_broken_from_the_start_gives_what_can_be_read(root: Path) -> None:
    (root / "a.yaml").write_text(text(("a", 1), ("b", 1)) + "---\ntype: [\n")
    (root / "c.yaml").write_text(text(("c", 1)))

    async def scenario() -> None:
        async with files(root) as store:
            finding, contents = await found(store, "not-yaml")
            assert values(contents) == {"a": 1, "b": 1, "c": 1}
            assert finding.hint == ""
            (root / "a.yaml").write_text(text(("a", 2)) + "---\ntype: [\n")
            await becomes(store, a=2, b=1, c=1)
            (root / "a.yaml").write_text(text(("a", 3)))
            await mended(store, a=3, c=1)

    run(scenario())


@pytest.mark.parametrize(
    ("content", "code", "line"),
    [
        (b"name: \xff\n", "not-utf-8", 1),
        (b"name: a\n# \xe9t\xe9\n", "not-utf-8", 2),
        (text(("a", 1)).encode("utf-16"), "not-utf-8", 1),
        (b"#" * (LARGEST + 1), "file-too-large", 0),
        (b"just text\n", "no-document", 1),
        (b"- a\n- b\n", "no-document", 1),
        (b"mesh: default\nname: a\nspec:\n  value: 2\n", "no-document", 1),
    ],
)
def test_a_file_that_cannot_be_read_keeps_what_was_good(root: Path, content: bytes, code: str, line: int) -> None:
    (root / "a.yaml").write_text(text(("a", 1)))

    async def scenario() -> None:
        async with files(root) as store:
            (root / "a.yaml").write_bytes(content)
            finding, contents = await found(store, code)
            assert values(contents) == {"a": 1}
            assert (finding.severity, finding.file, finding.line) == (Severity.ERROR, str(root / "a.yaml"), line)
            assert finding.hint.endswith("until this is mended, what was last good stays in force")
            (root / "a.yaml").write_text(text(("a", 2)))
            await mended(store, a=2)

    run(scenario())


def test_a_file_of_exactly_the_largest_size_is_read(root: Path) -> None:
    (root / "a.yaml").write_bytes(text(("a", 1)).encode().ljust(LARGEST, b"#"))

    async def scenario() -> None:
        async with files(root, parse=lambda text, file: read_documents(text.rstrip("#"), file)) as store:
            assert values(await store.read()) == {"a": 1}

    run(scenario())


def test_what_is_no_ordinary_file_does_not_hold_up_the_others(root: Path) -> None:
    os.mkfifo(root / "a.yaml")
    (root / "b.yaml").symlink_to("b.yaml")
    (root / "c.yaml").write_text(text(("c", 1)))

    async def scenario() -> None:
        async with files(root) as store:
            contents = await store.read()
            assert values(contents) == {"c": 1}
            assert [(finding.file, finding.message) for finding in contents.findings] == [
                (str(root / "b.yaml"), "cannot be read: too many levels of symbolic links"),
                (str(root / "a.yaml"), "is no ordinary file"),
            ]

    run(scenario())


def test_a_file_that_fails_to_be_read_does_not_hold_up_the_others(root: Path) -> None:
    unreadable = Path("/proc/self/mem")  # an ordinary file, says the kernel, but there is nothing at its beginning
    if not unreadable.exists():
        pytest.skip("there is no /proc here")
    (root / "a.yaml").symlink_to(unreadable)
    (root / "b.yaml").write_text(text(("b", 1)))

    async def scenario() -> None:
        async with files(root) as store:
            contents = await store.read()
            assert values(contents) == {"b": 1}
            assert [finding.message for finding in contents.findings] == ["cannot be read: input/output error"]

    run(scenario())


def test_a_file_that_is_written_between_being_looked_at_and_read_is_left_for_later(root: Path) -> None:
    path = root / "a.yaml"
    path.write_text(text(("a", 1)))
    looked_at = FileSignature.of(path.stat())
    folder = Folder(root, read_documents, lasting=0)
    path.write_text(text(("a", 1), ("half", 1)))

    assert folder._file(str(path), looked_at) == FolderFile()
    path.unlink()
    assert folder._file(str(path), looked_at) == FolderFile()
    path.write_text(text(("a", 2)))
    assert [write.key for write in folder.read().writes] == [key("a")]


def test_a_fault_of_our_own_is_told_to_followers(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> FolderEdit:
        raise RuntimeError("a bug")

    async def scenario() -> None:
        async with files(root) as store:
            monkeypatch.setattr(store._folder, "read", fail)
            (root / "a.yaml").touch()
            with pytest.raises(RuntimeError, match="a bug"):
                await next_batch(store, 0)

    run(scenario())


def test_a_file_and_a_directory_without_permission_keep_what_was_good(root: Path) -> None:
    (root / "a.yaml").write_text(text(("a", 1)))
    (root / "below").mkdir()
    (root / "below" / "b.yaml").write_text(text(("b", 1)))
    (root / "other").touch(mode=0)
    if os.access(root / "other", os.R_OK):
        pytest.skip("this user may read everything")

    async def scenario() -> None:
        async with files(root) as store:
            (root / "a.yaml").chmod(0)
            await found(store, "unreadable-file")
            (root / "below").chmod(0)
            await until(store, lambda contents: len(contents.findings) == 2)
            assert values(await store.read()) == {"a": 1, "b": 1}
            (root / "below").chmod(0o700)
            (root / "a.yaml").chmod(0o600)
            await mended(store, a=1, b=1)

    run(scenario())


def test_a_directory_that_disappears_keeps_what_was_there_until_it_is_back(root: Path) -> None:
    (root / "a.yaml").write_text(text(("a", 1)))
    root.with_name("prepared").mkdir()
    (root.with_name("prepared") / "b.yaml").write_text(text(("b", 1)))

    async def scenario() -> None:
        async with files(root) as store:
            move(root, "away")
            finding, contents = await found(store, "unreadable-file")
            assert values(contents) == {"a": 1}
            assert f"{root}: cannot be read: no such file or directory" in str(finding)
            move(root.with_name("prepared"), root.name)
            await mended(store, b=1)

    run(scenario())


def test_a_document_that_cannot_be_told_keeps_all_that_are_missing(root: Path) -> None:
    (root / "a.yaml").write_text(text(("a", 1), ("b", 1), ("c", 1)))
    (root / "d.yaml").write_text(text(("d", 1)))

    async def scenario() -> None:
        async with files(root) as store:
            (root / "a.yaml").write_text(text(("a", 2), ("b", 2)).replace("name: b\n", "") + "---\n" + text(("c", 2)))
            finding, contents = await found(store, "no-document")
            assert values(contents) == {"a": 2, "b": 1, "c": 2, "d": 1}
            assert finding.line == 7
            (root / "d.yaml").unlink()
            await becomes(store, a=2, b=1, c=2)
            (root / "a.yaml").write_text(text(("a", 3)))
            await mended(store, a=3)

    run(scenario())


def test_a_file_in_which_there_was_never_a_document_keeps_nothing(root: Path) -> None:
    (root / "compose.yaml").write_text("services: {}\n")
    (root / "a.yaml").write_text(text(("a", 1)))

    async def scenario() -> None:
        async with files(root) as store:
            finding, contents = await found(store, "no-document")
            assert (values(contents), finding.file) == ({"a": 1}, str(root / "compose.yaml"))
            assert "until" not in finding.hint
            (root / "a.yaml").unlink()
            await becomes(store)

    run(scenario())


def test_a_name_in_two_files_is_a_finding_that_names_both_and_changes_nothing(root: Path) -> None:
    (root / "b.yaml").write_text(text(("x", 1), ("a", 1)))

    async def scenario() -> None:
        async with files(root) as store:
            (root / "a.yaml").write_text(text(("new", 1), ("a", 2)))
            finding, contents = await found(store, "duplicate-name")
            assert values(contents) == {"x": 1, "a": 1, "new": 1}
            assert finding.resource == key("a")
            assert finding.message == f"is written in {root / 'a.yaml'}:7 and in {root / 'b.yaml'}:7"
            (root / "b.yaml").write_text(text(("x", 1)))
            await mended(store, x=1, a=2, new=1)

    run(scenario())


def test_of_a_name_in_two_files_at_the_start_the_first_by_path_counts(root: Path) -> None:
    (root / "b.yaml").write_text(text(("a", 2)))
    (root / "a.yaml").write_text(text(("a", 1)))

    async def scenario() -> None:
        async with files(root) as store:
            _, contents = await found(store, "duplicate-name")
            assert values(contents) == {"a": 1}
            (root / "a.yaml").unlink()
            await mended(store, a=2)

    run(scenario())


def test_a_name_twice_in_one_file_keeps_what_was_good(root: Path) -> None:
    (root / "a.yaml").write_text(text(("a", 1), ("b", 1)))

    async def scenario() -> None:
        async with files(root) as store:
            (root / "a.yaml").write_text(text(("a", 2), ("a", 3), ("b", 2)))
            finding, contents = await found(store, "duplicate-name")
            assert values(contents) == {"a": 1, "b": 2}
            assert (finding.resource, finding.line) == (key("a"), 7)
            (root / "a.yaml").write_text(text(("a", 3), ("b", 2)))
            await mended(store, a=3, b=2)

    run(scenario())


def test_a_file_that_trips_the_parser_does_not_stop_the_others(root: Path) -> None:
    def parse(text: str, file: str) -> FileReading:
        if "trip" in text:
            raise RecursionError("too deep")
        return read_documents(text, file)

    (root / "a.yaml").write_text(text(("a", 1)))

    async def scenario() -> None:
        async with files(root, parse=parse) as store:
            (root / "a.yaml").write_text("trip")
            (root / "b.yaml").write_text(text(("b", 1)))
            finding, _ = await found(store, "unreadable-file")
            assert finding.message == "the parser failed: RecursionError('too deep')"
            await becomes(store, a=1, b=1)

    run(scenario())


def test_names_that_are_not_utf_8_are_shown_all_the_same(root: Path) -> None:
    strange = os.fsdecode(b"\xe9t\xe9.yaml")

    async def scenario() -> None:
        async with files(root) as store:
            (root / strange).write_text("type: [")
            finding, _ = await found(store, "not-yaml")
            assert finding.file == f"{root}/\\xe9t\\xe9.yaml"
            (root / strange).write_text(text(("a", 1)))
            await mended(store, a=1)
            (root / strange).unlink()
            await becomes(store)
            (root / "b.yaml").write_text(text(("b", 1)))
            await becomes(store, b=1)

    run(scenario())


# --- writing, and the rest ----------------------------------------------------------------------------------------


def test_writing_is_refused_and_says_where_to_edit(root: Path) -> None:
    (root / "a.yaml").write_text(text(("a", 1)))

    async def scenario() -> None:
        async with files(root) as store:
            refusal = f"the store is the directory {root}, which is only read: edit"
            with pytest.raises(ReadOnly, match=f"^{re.escape(f'{refusal} {root}/a.yaml')}$"):
                await store.write(put("a", 2))
            with pytest.raises(ReadOnly, match=f"^{re.escape(refusal)} a file there$"):
                await store.write(put("b"), delete("c"))

    run(scenario())


def test_reading_only_what_changed(root: Path) -> None:
    for name in "abc":
        (root / f"{name}.yaml").write_text(text((name, 1)))
    read: list[str] = []

    def parse(text: str, file: str) -> FileReading:
        read.append(Path(file).name)
        return read_documents(text, file)

    async def scenario() -> None:
        async with files(root, parse=parse) as store:
            assert sorted(read) == ["a.yaml", "b.yaml", "c.yaml"]
            read.clear()
            (root / "b.yaml").write_text(text(("b", 2)))
            await becomes(store, a=1, b=2, c=1)
            assert set(read) == {"b.yaml"}

    run(scenario())


def test_what_nobody_told_is_found_in_the_end(root: Path, tmp_path: Path) -> None:
    """A link of a link is watched where it ends, so a swap on the way goes unheard: the backstop sees it."""
    for version in (1, 2):
        (tmp_path / f"v{version}").mkdir()
        (tmp_path / f"v{version}" / "a.yaml").write_text(text(("a", version)))
    (tmp_path / "hop").mkdir()
    (tmp_path / "hop" / "current").symlink_to(tmp_path / "v1")
    (root / "a.yaml").symlink_to(tmp_path / "hop" / "current" / "a.yaml")

    async def scenario() -> None:
        async with files(root, backstop=0.1) as store:
            (tmp_path / "hop" / "next").symlink_to(tmp_path / "v2")
            (tmp_path / "hop" / "next").rename(tmp_path / "hop" / "current")
            await becomes(store, a=2)

    run(scenario())


def test_closing_ends_the_watch(root: Path) -> None:
    async def scenario() -> FilesStore:
        async with files(root) as store:
            assert store._watch._thread.is_alive()
        return store

    assert not run(scenario())._watch._thread.is_alive()


def test_a_mesh_has_no_mesh(root: Path) -> None:
    (root / "mesh.yaml").write_text("type: Mesh\nname: default\n")

    async def scenario() -> None:
        async with files(root) as store:
            assert await store.get(Key("Mesh", "", "default")) is not None
            await asyncio.to_thread((root / "mesh.yaml").unlink)
            await until(store, lambda contents: not contents.stored)

    run(scenario())


def test_a_proxy_that_is_in_no_file_is_told_of_a_store_beside(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await FilesStore.open(tmp_path, read_documents)
        with pytest.raises(ReadOnly, match="--registrations"):
            await store.write(Put(document("web", kind="Dataplane")))
        with pytest.raises(ReadOnly) as refused:
            await store.write(Put(document("policy")))
        assert "--registrations" not in str(refused.value)
        await store.close()

    run(scenario())
