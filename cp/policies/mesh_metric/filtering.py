"""The program of the HTTP filter that stands in front of Envoy's metrics, in Lua.

Envoy's admin interface can leave out metrics by one expression on names as Envoy has them inside. A MeshMetric speaks
of names as Prometheus has them, and of metrics of applications too; so the answer is read and put together anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from cp.policies.mesh_metric.patterns import NotAPattern, patterns
from cp.policies.mesh_metric.schema import MetricProfiles, MetricSelector

Report: TypeAlias = list[tuple[str, str]]

_BASIC: Final = (
    "envoy_cluster_circuit_breakers",
    "envoy_cluster_external_upstream_rq",
    "envoy_cluster_health_check",
    "envoy_cluster_lb_healthy_panic",
    "envoy_cluster_membership",
    "envoy_cluster_outlier_detection",
    "envoy_cluster_ssl",
    "envoy_cluster_upstream_cx",
    "envoy_cluster_upstream_rq",
    "envoy_control_plane",
    "envoy_http_downstream_cx",
    "envoy_http_downstream_rq",
    "envoy_http_local_rate_limit",
    "envoy_http_rbac",
    "envoy_listener_downstream_cx",
    "envoy_listener_ssl",
    "envoy_server",
    "envoy_tcp",
)
"""The metrics for dashboards and alarms: rates, durations and outcomes of calls, and the health of endpoints."""

_ALL: Final = ("",)
PROFILES: Final[Mapping[str, tuple[str, ...]]] = {"All": _ALL, "Basic": _BASIC, "None": ()}
"""By profile, the prefixes of the names of its metrics."""

_PROGRAM: Final = """
local profile = {PROFILE}
local exclude = {EXCLUDE}
local include = {INCLUDE}
local applications = {APPLICATIONS}

local function among(name, tests)
  for _, test in ipairs(tests) do
    local how, text = test[1], test[2]
    if how == "prefix" and name:sub(1, #text) == text then return true end
    if how == "exact" and name == text then return true end
    if how == "contains" and name:find(text, 1, true) then return true end
    if how == "pattern" and name:find(text) then return true end
  end
  return false
end

local function kept(name)
  return among(name, include) or (among(name, profile) and not among(name, exclude))
end

local function filtered(text)
  local lines, keep = {}, false
  for line in text:gmatch("[^\\n]+") do
    local family = line:match("^# %u+ (%S+)")
    if family then keep = kept(family) end
    if keep then lines[#lines + 1] = line end
  end
  lines[#lines + 1] = ""
  return table.concat(lines, "\\n")
end

function envoy_on_response(handle)
  if handle:headers():get(":status") ~= "200" then return end
  local told = handle:body(true)
  local parts = { filtered(told:getBytes(0, told:length())) }
  for _, one in ipairs(applications) do
    local asked = { [":method"] = "GET", [":path"] = one.path, [":authority"] = one.authority }
    local headers, text = handle:httpCall(one.cluster, asked, "", 5000)
    if headers and headers[":status"] == "200" and text then
      parts[#parts + 1] = text
      if text:sub(-1) ~= "\\n" then parts[#parts + 1] = "\\n" end
    end
  end
  local length = handle:body(true):setBytes(table.concat(parts))
  handle:headers():replace("content-length", length)
end
"""


def program(profiles: MetricProfiles | None, applications: Iterable[tuple[str, str, str]], report: Report) -> str:
    """The program; empty where all metrics pass unchanged."""
    profiles = profiles or MetricProfiles()
    names = [profile.name or "All" for profile in profiles.append_profiles or ()] or ["All"]
    profile = tuple(("prefix", begin) for name in names for begin in PROFILES[name])
    exclude = tuple(_tests(profiles.exclude, "exclude", report))
    include = tuple(_tests(profiles.include, "include", report))
    requested = tuple(applications)
    if ("prefix", *_ALL) in profile and not exclude and not requested:
        return ""
    text = _PROGRAM
    for name, tests in (("PROFILE", profile), ("EXCLUDE", exclude), ("INCLUDE", include)):
        text = text.replace(
            f"{{{name}}}", _list(f"{{{_quoted(comparison)}, {_quoted(operand)}}}" for comparison, operand in tests)
        )
    fields = ("cluster", "path", "authority")
    rows = (
        ", ".join(f"{name} = {_quoted(value)}" for name, value in zip(fields, application, strict=True))
        for application in requested
    )
    return text.replace("{APPLICATIONS}", _list(f"{{{row}}}" for row in rows))


def _tests(selectors: Iterable[MetricSelector] | None, field: str, report: Report) -> Iterator[tuple[str, str]]:
    for selector in selectors or ():
        if selector.type != "Regex":
            yield (selector.type or "Exact").lower(), selector.match
            continue
        try:
            yield from (("pattern", pattern) for pattern in patterns(selector.match))
        except NotAPattern as error:
            report.append((f"sidecar.profiles.{field}", f"{error}, which Envoy cannot compare names of metrics with"))


def _list(items: Iterable[str]) -> str:
    return f"{{{', '.join(items)}}}"


def _quoted(text: str) -> str:
    """A string literal of Lua, with every special character escaped."""
    return f'"{_SPECIAL.sub(_numbered, text)}"'


def _numbered(character: re.Match[str]) -> str:
    return "".join(f"\\{byte:03d}" for byte in character[0].encode(errors="replace"))


_SPECIAL: Final = re.compile(r"[^A-Za-z0-9_.:/%*+?$^()\[\]-]")
