"""Dashboards are what Grafana reads, and each panel says what it shows."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from typer.testing import CliRunner

from cp.cli.main import build
from cp.monitoring.dashboards import DASHBOARDS
from cp.monitoring.files import PAGES, files
from cp.monitoring.grafana import DATA_SOURCE, SCHEMA_VERSION, dashboard_json
from cp.monitoring.panels import Dashboard, Unit
from tests.monitoring.test_alerts import needs_promtool

WIDTH = 24
VARIABLE = re.compile(r"\$(\w+)")
LABEL_VALUES = re.compile(r"label_values\((.+), *(\w+)\)")

CHOICES = {"everything": ".*", "one": "web-1", "several": "(web-1|web\\\\.2)"}
"""What Grafana writes in the place of a variable, as a reader chooses; it escapes what regular expressions obey."""

each_dashboard = pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: dashboard.uid)


@each_dashboard
def test_a_dashboard_has_what_grafana_asks_for(dashboard: Dashboard) -> None:
    data = json.loads(json.dumps(dashboard_json(dashboard)))

    assert (data["uid"], data["title"], data["schemaVersion"]) == (dashboard.uid, dashboard.title, SCHEMA_VERSION)
    assert "id" not in data, "the number of a database is not ours to choose"
    numbers = [panel["id"] for panel in data["panels"]]
    assert len(numbers) == len(set(numbers))
    names = [variable["name"] for variable in data["templating"]["list"]]
    assert names[0] == "datasource"
    assert names == list(dict.fromkeys(names))


@each_dashboard
def test_each_panel_has_a_chosen_data_source_a_unit_and_a_description(dashboard: Dashboard) -> None:
    for panel in panels(dashboard):
        assert panel["datasource"] == DATA_SOURCE
        assert panel["fieldConfig"]["defaults"]["unit"] in get_args(Unit)
        assert panel["description"].endswith("."), panel["title"]
        assert len(panel["targets"]) > 0
        for target in panel["targets"]:
            assert (target["datasource"], target["expr"] != "") == (DATA_SOURCE, True)


@each_dashboard
def test_no_panel_lies_on_another_one_or_beyond_the_edge(dashboard: Dashboard) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard_json(dashboard)["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= WIDTH
        assert not cells & taken, panel["title"]
        taken |= cells


@each_dashboard
def test_each_variable_of_an_expression_is_one_that_a_reader_chooses(dashboard: Dashboard) -> None:
    known = {variable.name for variable in dashboard.variables} | {"__rate_interval"}
    for panel in dashboard.panels:
        for query in panel.queries:
            used = {word.split('"')[0].split("]")[0] for word in query.expression.split("$")[1:]}
            assert used <= known, f"{panel.title}: {query.expression}"


def asked_of_prometheus(dashboard: Dashboard) -> Iterator[tuple[str, str]]:
    """What Grafana asks, with where it stands in the file that it reads: for panels, and for what can be chosen."""
    data = json.loads(files(PAGES)[f"dashboards/{dashboard.uid}.json"])
    for panel in data["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]
    for variable in data["templating"]["list"]:
        if variable["type"] == "query":
            match = LABEL_VALUES.fullmatch(variable["query"]["query"])
            assert match is not None, variable["query"]
            yield variable["name"], match[1]


def chosen(expression: str, choice: str) -> str:
    return VARIABLE.sub(lambda variable: "2m" if variable[1] == "__rate_interval" else choice, expression)


def objections(expressions: Iterable[str], folder: Path) -> str:
    """What Prometheus' own parser has against expressions; empty where it takes them all."""
    rules = [{"record": f"expression:{number}", "expr": text} for number, text in enumerate(expressions)]
    (folder / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    command = ["promtool", "check", "rules", str(folder / "rules.yml")]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if checked.returncode == 0 else checked.stdout + checked.stderr


@needs_promtool
@each_dashboard
@pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES)
def test_prometheus_understands_whatever_a_dashboard_asks(dashboard: Dashboard, choice: str, tmp_path: Path) -> None:
    asked = [chosen(expression, choice) for _, expression in asked_of_prometheus(dashboard)]

    assert len(asked) > len(dashboard.panels)
    assert "$" not in "".join(asked)
    assert not objections(asked, tmp_path)


@needs_promtool
def test_an_expression_that_prometheus_does_not_understand_would_be_found(tmp_path: Path) -> None:
    assert not objections(["sum(up)"], tmp_path)
    assert "expected type range vector" in objections(["sum(up)", "rate(up)"], tmp_path)
    assert "could not parse expression" in objections(["sum(up"], tmp_path)


def test_the_command_writes_what_is_shipped_with_links_to_the_documentation(tmp_path: Path) -> None:
    url = "https://docs.example/"
    outcome = CliRunner().invoke(build(), ["generate", "monitoring", "--into", str(tmp_path / "new"), "--pages", url])

    assert outcome.exit_code == 0, outcome.output
    written = {str(path.relative_to(tmp_path / "new")): path.read_text() for path in (tmp_path / "new").rglob("*.*")}
    assert written == files(url)
    assert f"runbook_url: {url}guides/monitor.md#the-store" in written["alerts.yml"]
    assert written.keys() == files(PAGES).keys()


def test_generate_monitoring_lists_files_in_order(tmp_path: Path) -> None:
    outcome = CliRunner().invoke(build(), ["generate", "monitoring", "--into", str(tmp_path)])

    dashboards = [f"dashboards/koguma-{name}.json" for name in ("control-plane", "fleet", "traffic")]
    expected = ["prometheus.yml", "alerts.yml", *dashboards]
    assert [str(Path(line).relative_to(tmp_path)) for line in outcome.output.splitlines()] == expected


def panels(dashboard: Dashboard) -> list[dict[str, Any]]:
    return [panel for panel in dashboard_json(dashboard)["panels"] if panel["type"] != "row"]
