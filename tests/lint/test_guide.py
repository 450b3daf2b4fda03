"""What the guide shows is what its example really comes to."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.conftest import Koguma

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "lint.md"
OUTPUT = re.compile(r"(```text\n\$ koguma lint -f mesh\.yaml\n).*?(```)", re.DOTALL)


def test_the_output_in_the_guide_is_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_updating: bool) -> None:
    text = GUIDE.read_text()
    monkeypatch.chdir(tmp_path)
    Path("mesh.yaml").write_text("".join(re.findall(r"^```yaml\n(.*?)^```", text, re.DOTALL | re.MULTILINE)))
    ended = Koguma()("lint", "-f", "mesh.yaml")

    real = OUTPUT.sub(lambda block: f"{block[1]}{ended.out}{block[2]}", text)
    if is_updating:
        GUIDE.write_text(real)
        return
    assert OUTPUT.search(text)
    assert text == real, "if that is right: make golden ARGS='-k guide'"
    assert ended.status == 1
