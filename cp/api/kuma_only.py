"""Types of resources that Kuma has and Koguma has not.

Kuma's tools list all of them. There are none here, so each of these lists is empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

KUMA_ONLY: Final[Mapping[str, str]] = {
    "meshzoneaddresses": "MeshZoneAddress",
    "workloads": "Workload",
    "zoneegresses": "ZoneEgress",
    "zoneegressoverviews": "ZoneEgress",
    "zoneingresses": "ZoneIngress",
    "zoneingresses+insights": "ZoneIngress",
    "zones": "Zone",
    "zones+insights": "Zone",
}
"""By the name in the path, the name of the type. The last ones are older names of the lists with insights."""

OVERVIEW: Final = "_overview"
"""What stands in the place of a name where a list with insights is asked for."""
