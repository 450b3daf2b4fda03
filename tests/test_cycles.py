"""What an edit replaces and what lint computes is freed at once, without the garbage collector, which seldom runs."""

from __future__ import annotations

from weakref import ref

import pytest

from cp.insight.lint import lint
from cp.model.document import Document
from cp.model.source import read_documents
from cp.policies import kinds
from cp.resources.world import World
from cp.translate.compiler import Compiler
from tests.golden import Case, cases
from tests.snapshots import Question, policies
from tests.support.garbage import cyclic_garbage, types_of, without_collector

STRIDE = 5


def relabelled(document: Document, number: int) -> Document:
    labels = {**(document.data.get("labels") or {}), "edited": f"{number}-times"}
    return Document(document.key, {**document.data, "labels": labels}, document.source)


@pytest.mark.parametrize("case", [*cases("policies"), *cases("legacy"), *cases("proxies")][::STRIDE])
def test_edited_resource_is_freed_without_the_collector(case: Case) -> None:
    question, compiler = Question.of(case), Compiler(policies())
    world = World.of(question.documents, kinds(policies()))

    def compile_all() -> None:
        for dataplane in world.table("Dataplane", question.mesh):
            compiler.proxy(world, dataplane)

    compile_all()
    first = [
        ref(resource) for resource in map(world.get, [document.key for document in question.documents]) if resource
    ]
    with without_collector():
        for number, document in enumerate(question.documents * 3):  # some keep the version before
            world = world.next({document.key: relabelled(document, number)}, world.revision + 1, ())
            compile_all()
        kept = [resource() for resource in first]

    assert [resource for resource in kept if resource is not None] == []


@pytest.mark.parametrize("case", cases("lint")[::STRIDE])
def test_lint_leaves_nothing_to_the_collector(case: Case) -> None:
    lint(policies(), World.of(read_documents(case.text, case.name).documents, kinds(policies())))  # fills caches

    with cyclic_garbage() as garbage:
        lint(policies(), World.of(read_documents(case.text, case.name).documents, kinds(policies())))
    assert types_of(garbage) == set()
