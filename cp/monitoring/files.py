"""The files, as they are shipped and as `koguma generate monitoring` writes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

import yaml

from cp.monitoring.alerts import rules
from cp.monitoring.dashboards import DASHBOARDS
from cp.monitoring.grafana import dashboard_json

PAGES: Final = "docs/"
"""Where the documentation is: below the folder of the sources, unless somebody says better."""

_ALERTS: Final = """\
# Alerts for control planes and proxies. Made by `koguma generate monitoring`.
# Prometheus' job for control planes is `koguma`, that for proxies `koguma-proxies` (prometheus.yml).
"""

_PROMETHEUS: Final = """\
# How Prometheus finds control planes and proxies. Made by `koguma generate monitoring`.
global:
  scrape_interval: 15s
rule_files:
  - alerts.yml
scrape_configs:
  - job_name: koguma
    static_configs:
      - targets: [localhost:5680]  # the diagnostics port of each control plane on the store
  - job_name: koguma-proxies
    http_sd_configs:
      - url: http://localhost:5681/_prometheus/targets
        refresh_interval: 15s
        # Beyond loopback: https, and a token with the rights to read Dataplane and Inspection.
        # authorization: {credentials_file: /etc/prometheus/koguma-token}
        # tls_config: {ca_file: /etc/prometheus/koguma-cp-ca.crt}
"""


def files(pages: str) -> Mapping[str, str]:
    """The text of each file by its path. `pages` is where the documentation is to which alerts lead."""
    dashboards = {f"dashboards/{dashboard.uid}.json": _json(dashboard_json(dashboard)) for dashboard in DASHBOARDS}
    alerts = _ALERTS + yaml.safe_dump(rules(pages), sort_keys=False, width=120)
    return {"prometheus.yml": _PROMETHEUS, "alerts.yml": alerts, **dashboards}


def _json(data: object) -> str:
    return json.dumps(data, indent=2) + "\n"
