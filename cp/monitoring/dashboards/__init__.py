"""The dashboards: what a control plane does, how its proxies are, and what goes through them."""

from __future__ import annotations

from typing import Final

from cp.monitoring.dashboards.control_plane import CONTROL_PLANE
from cp.monitoring.dashboards.fleet import FLEET
from cp.monitoring.dashboards.traffic import TRAFFIC

DASHBOARDS: Final = (CONTROL_PLANE, FLEET, TRAFFIC)
