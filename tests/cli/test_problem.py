"""Errors that a user sees, and what they can do about them."""

from __future__ import annotations

import sys

import pytest

from cp.client.problem import missing_library


@pytest.mark.parametrize(
    ("prefix", "extra", "message", "hint"),
    [
        ("/usr/lib/koguma", "cp", "the libraries of the control plane, which are", "Install the package koguma-cp."),
        ("/home/a/.venv", "cp", "the libraries of the control plane, which are", "pip install 'koguma[cp]'"),
        ("/home/a/.venv", "metrics", "the library grpc, which is", "pip install 'koguma[metrics]'"),
    ],
)
def test_missing_library_names_what_to_install(
    monkeypatch: pytest.MonkeyPatch, prefix: str, extra: str, message: str, hint: str
) -> None:
    monkeypatch.setattr(sys, "prefix", prefix)
    problem = missing_library(ModuleNotFoundError("no grpc", name="grpc"), extra)

    assert problem.message == f"this needs {message} not installed"
    assert hint in problem.hint
