"""Dashboards as Grafana reads them: JSON of its schema version 39 (Grafana 10.4 and later)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from cp.monitoring.panels import Dashboard, DashboardVariable, Panel, PanelRow

SCHEMA_VERSION: Final = 39
DATA_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
"""A variable, so that a reader chooses the Prometheus."""

_WIDTH: Final = 24
_HEIGHT: Final = 8


def dashboard_json(dashboard: Dashboard) -> dict[str, Any]:
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.description,
        "tags": ["koguma"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "timezone": "browser",
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "annotations": {"list": []},
        "links": [_link()],
        "templating": {"list": [_data_source(), *map(_variable, dashboard.variables)]},
        "panels": list(_panels(dashboard)),
    }


def _link() -> dict[str, Any]:
    """To the other dashboards."""
    link = {"title": "Koguma", "type": "dashboards", "tags": ["koguma"], "asDropdown": True}
    return link | {"includeVars": False, "keepTime": True, "targetBlank": False, "icon": "external link", "url": ""}


def _data_source() -> dict[str, Any]:
    return {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
        "current": {},
        "hide": 0,
        "includeAll": False,
        "multi": False,
        "options": [],
        "refresh": 1,
        "regex": "",
    }


def _variable(variable: DashboardVariable) -> dict[str, Any]:
    return {
        "name": variable.name,
        "label": variable.label,
        "type": "query",
        "datasource": DATA_SOURCE,
        "query": {"query": variable.query, "refId": variable.name},
        "definition": variable.query,
        "current": {"selected": True, "text": "All", "value": "$__all"},
        "hide": 0,
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "options": [],
        "refresh": 2,
        "regex": "",
        "sort": 1,
    }


def _panels(dashboard: Dashboard) -> Iterator[dict[str, Any]]:
    """Each row has its title above it, and goes on in the next line where it is full."""
    number, top = 0, 0
    for row in dashboard.rows:
        number += 1
        yield _row(row, number, top)
        left, top = 0, top + 1
        for panel in row.panels:
            if left + panel.width > _WIDTH:
                left, top = 0, top + _HEIGHT
            number += 1
            yield _panel(panel, number, {"x": left, "y": top, "w": panel.width, "h": _HEIGHT})
            left += panel.width
        top += _HEIGHT


def _row(row: PanelRow, number: int, top: int) -> dict[str, Any]:
    place = {"x": 0, "y": top, "w": _WIDTH, "h": 1}
    return {"id": number, "type": "row", "title": row.title, "collapsed": False, "gridPos": place, "panels": []}


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": panel.shape,
        "title": panel.title,
        "description": panel.description,
        "datasource": DATA_SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, "custom": _custom(panel)}, "overrides": []},
        "options": _options(panel),
        "targets": list(_targets(panel)),
    }


def _custom(panel: Panel) -> dict[str, Any]:
    return {"fillOpacity": 10, "showPoints": "never"} if panel.shape == "timeseries" else {}


def _options(panel: Panel) -> dict[str, Any]:
    if panel.shape == "timeseries":
        legend = {"displayMode": "list", "placement": "bottom", "showLegend": True}
        return {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}
    if panel.shape == "stat":
        reduced = {"calcs": ["lastNotNull"], "fields": "", "values": False}
        return {"reduceOptions": reduced, "colorMode": "value", "graphMode": "area", "textMode": "auto"}
    return {"showHeader": True}


def _targets(panel: Panel) -> Iterator[dict[str, Any]]:
    for letter, query in zip("ABCDEFGH", panel.queries, strict=False):
        is_table = panel.shape == "table"
        yield {
            "refId": letter,
            "datasource": DATA_SOURCE,
            "expr": query.expression,
            "legendFormat": query.legend or "__auto",
            "editorMode": "code",
            "format": "table" if is_table else "time_series",
            "instant": is_table,
            "range": not is_table,
        }
