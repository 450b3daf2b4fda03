"""What is not granted is refused, and a file with rights says everything that is wrong with it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cp.access.rights import (
    ADMIN,
    AUTHENTICATED,
    BY_NAME,
    DATAPLANE_TOKEN,
    INSPECTION,
    LOCAL_ADMIN,
    METRICS,
    NOBODY,
    UNAUTHENTICATED,
    USER_TOKEN,
    AccessLists,
    Rights,
    Subjects,
    User,
    Verb,
    default_rights,
    of_resource,
)
from cp.access.rights_file import BadAccessFile, rights_of
from cp.policies import discover, kinds

KINDS = kinds(discover())
ADMINS = Subjects(frozenset({ADMIN}), frozenset({ADMIN}))
READERS = Subjects(groups=frozenset({AUTHENTICATED}))
ANN = User("ann", ("orders", AUTHENTICATED))
BOB = User("bob", (AUTHENTICATED,))

FILE = """\
administrators:
  groups: [platform]
rights:
  - groups: [orders]
    may: [read, write]
    meshes: [orders]
  - users: [ci]
    may: [write]
    kinds: [MeshTimeout, Secret]
  - groups: [orders]
    may: [read]
    kinds: [MeshService]
"""


def rights(text: str = FILE) -> Rights:
    return rights_of(text, "access.yaml", KINDS, ADMINS)


def defaults() -> Rights:
    return default_rights(AccessLists(ADMINS, ADMINS, ADMINS, ADMINS, READERS, READERS))


def faults(text: str) -> list[str]:
    with pytest.raises(BadAccessFile) as bad:
        rights(text)
    return [str(finding) for finding in bad.value.findings]


@pytest.mark.parametrize("kind", [*KINDS, INSPECTION, METRICS, DATAPLANE_TOKEN, USER_TOKEN])
@pytest.mark.parametrize("verb", Verb)
def test_without_a_file_whoever_has_a_token_reads_all_but_secrets_and_nobody_else_anything(
    kind: str, verb: Verb
) -> None:
    assert defaults().may(BOB, verb, kind, "default").allowed == (verb is Verb.READ and kind not in BY_NAME)
    assert defaults().may(LOCAL_ADMIN, verb, kind, "default").allowed
    assert not defaults().may(NOBODY, verb, kind, "default").allowed
    assert not defaults().may_somewhere(NOBODY, verb, kind).allowed


@pytest.mark.parametrize(
    ("user", "verb", "kind", "mesh", "allowed"),
    [
        (ANN, Verb.WRITE, "MeshTimeout", "orders", True),
        (ANN, Verb.READ, "MeshTimeout", "orders", True),
        (ANN, Verb.READ, INSPECTION, "orders", True),
        (ANN, Verb.WRITE, "MeshTimeout", "default", False),
        (ANN, Verb.WRITE, "Secret", "orders", False),
        (ANN, Verb.READ, "Secret", "orders", False),
        (ANN, Verb.WRITE, "MeshTrust", "orders", False),
        (ANN, Verb.READ, "MeshTrust", "orders", True),
        (ANN, Verb.WRITE, "MeshIdentity", "orders", False),
        (ANN, Verb.READ, "MeshIdentity", "orders", True),
        (ANN, Verb.WRITE, DATAPLANE_TOKEN, "orders", False),
        (ANN, Verb.READ, "HostnameGenerator", "", False),
        (ANN, Verb.READ, "MeshService", "default", True),
        (ANN, Verb.WRITE, "MeshService", "default", False),
        (User("ci"), Verb.WRITE, "Secret", "default", True),
        (User("ci"), Verb.READ, "Secret", "default", False),
        (User("ci"), Verb.READ, "MeshTimeout", "default", False),
        (User("orders"), Verb.READ, "MeshTimeout", "orders", False),
        (User("x", ("ci",)), Verb.WRITE, "MeshTimeout", "default", False),
        (User("x", ("platform",)), Verb.READ, "GlobalSecret", "", True),
        (LOCAL_ADMIN, Verb.READ, "MeshTimeout", "default", False),
    ],
)
def test_a_right_grants_its_verbs_to_its_kinds_in_its_meshes(
    user: User, verb: Verb, kind: str, mesh: str, *, allowed: bool
) -> None:
    assert rights().may(user, verb, kind, mesh).allowed is allowed


def test_a_right_for_a_mesh_covers_the_mesh_itself() -> None:
    mine, other = (of_resource(Verb.WRITE, "Mesh", "", name) for name in ("orders", "default"))

    assert rights().may(ANN, *_parts(mine)).allowed
    assert not rights().may(ANN, *_parts(other)).allowed


def _parts(permission: object) -> tuple[Verb, str, str]:
    verb, kind, mesh = (getattr(permission, name) for name in ("verb", "kind", "mesh"))
    return verb, kind, mesh


def test_a_list_of_all_meshes_may_be_asked_for_by_whoever_may_read_some() -> None:
    assert rights().may_somewhere(ANN, Verb.READ, "MeshTimeout").allowed
    assert not rights().may_somewhere(BOB, Verb.READ, "MeshTimeout").allowed


def test_a_decision_says_who_may_not_do_what_or_which_right_lets_him() -> None:
    refused = rights().may(ANN, Verb.WRITE, "MeshTimeout", "default")
    allowed = rights().may(ANN, Verb.WRITE, "MeshTimeout", "orders")

    groups = f"(groups `orders`, `{AUTHENTICATED}`)"
    assert refused.because == f"user `ann` {groups} may not write MeshTimeout in mesh `default`"
    assert allowed.because == f"access.yaml:4 lets user `ann` {groups} write MeshTimeout in mesh `orders`"


def test_the_administrators_of_the_settings_stay_where_a_file_names_none() -> None:
    assert rights("rights: []").is_administrator(LOCAL_ADMIN)
    assert not rights().is_administrator(LOCAL_ADMIN)


def test_user_shows_ten_groups_at_most() -> None:
    groups = tuple(f"g{number:02}" for number in range(11))

    assert str(User("ann", groups[:10])).endswith("`g08`, `g09`)")
    assert str(User("ann", groups)).endswith("`g08`, `g09` and 1 more)")


def test_the_file_in_the_documentation_is_valid() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "http-api.md"
    (text,) = re.findall(r"```yaml\n(administrators:.*?)```", page.read_text(), re.DOTALL)

    orders = User("ann", ("orders",))
    assert rights(text).may(orders, Verb.WRITE, "MeshTimeout", "shop").allowed
    assert not rights(text).may(orders, Verb.WRITE, "MeshService", "shop").allowed


def test_every_fault_of_a_file_is_told_at_once_with_its_line_and_what_would_be_right() -> None:
    text = f"""\
administrators:
  groups: [{UNAUTHENTICATED}]
rights:
  - may: [read]
  - groups: [a]
    may: [reed]
  - groups: [b]
    may: []
    kinds: [MeshTimout]
  - groups: [c]
    may: [read]
    meshes: []
    kinds: []
  - groups: [{UNAUTHENTICATED}]
    may: [read, write]
  - groups: [d]
    may: [read]
    meshes: [x]
    kinds: [HostnameGenerator, Metrics, Mesh]
  - group: [e]
    may: [read]
"""
    told = faults(text)

    assert [fault.partition(": ")[0] for fault in told] == [
        "access.yaml:6 rights[1].may[0]",
        "access.yaml:20 rights[6].group",
        "access.yaml:2 administrators.groups",
        "access.yaml:4 rights[0]",
        "access.yaml:8 rights[2].may",
        "access.yaml:9 rights[2].kinds[0]",
        "access.yaml:12 rights[3].meshes",
        "access.yaml:13 rights[3].kinds",
        "access.yaml:15 rights[4].may",
        "access.yaml:19 rights[5].kinds[0]",
        "access.yaml:19 rights[5].kinds[1]",
        "access.yaml:20 rights[6]",
    ]
    assert "did you mean `read`?" in told[0]
    assert "did you mean `groups`?" in told[1]
    assert "did you mean `MeshTimeout`?" in told[5]
    assert all("; " in fault for fault in told)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "access.yaml:1: has no documents"),
        ("rights: []\n---\nrights: []\n", "access.yaml:3: has 2 documents"),
        ("rights: [\n", "access.yaml:2: not YAML"),
        ("- a\n", "access.yaml:1: must be an object"),
        ("rights: {}\n", "access.yaml:1 rights: must be a list"),
    ],
)
def test_what_is_no_file_with_rights_is_refused(text: str, told: str) -> None:
    assert faults(text)[0].startswith(told)
