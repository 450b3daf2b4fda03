"""Types as a command line names them."""

from __future__ import annotations

import pytest

from cp.cli.type_names import TYPES, TypeNames
from cp.cli.types import kind_of, known_kinds, type_of
from cp.client.problem import Problem


def test_the_names_of_types_are_those_of_their_kinds() -> None:
    kinds = known_kinds().values()

    assert [TypeNames(kind.name, kind.plural, kind.short, kind.is_global) for kind in kinds] == list(TYPES)


@pytest.mark.parametrize("text", ["MeshTimeout", "meshtimeouts", "mt", "MESH-TIMEOUT"])
def test_a_type_has_several_names(text: str) -> None:
    assert type_of(text).name == kind_of(text).name == "MeshTimeout"


@pytest.mark.parametrize("kind", known_kinds().values(), ids=lambda kind: kind.name)
def test_a_command_line_and_a_url_mean_the_same_type(kind: TypeNames) -> None:
    for text in (kind.name, kind.plural, kind.short):
        known = known_kinds().find(text)
        assert known is not None
        assert type_of(text).name == known.name


def test_a_type_that_is_nearly_known_is_proposed() -> None:
    with pytest.raises(Problem) as problem:
        type_of("meshtimeot")

    assert problem.value.hint == "Did you mean meshtimeouts?"
