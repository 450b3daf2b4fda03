"""How registered proxies are, as the control plane that leads sees them; certificates, and findings."""

from __future__ import annotations

from typing import Final

from cp.monitoring.dashboards.queries import JOB, rate
from cp.monitoring.panels import Dashboard, DashboardVariable, PanelRow, panel

_OF_MESH: Final = 'job=~"$job",mesh=~"$mesh"'
_MESH: Final = DashboardVariable("mesh", "Mesh", 'label_values(koguma_dataplanes{job=~"$job"}, mesh)')

FLEET: Final = Dashboard(
    "koguma-fleet",
    "Koguma: fleet",
    "How all registered proxies are, as the control plane that leads sees them; certificates, and findings.",
    (JOB, _MESH),
    (
        PanelRow(
            "Now",
            tuple(
                panel(
                    title,
                    description,
                    "short",
                    (f'sum(koguma_dataplanes{{{_OF_MESH},state="{state}"}})', ""),
                    shape="stat",
                    width=4,
                )
                for state, title, description in (
                    ("in sync", "In sync", "Proxies that have confirmed all that they should have."),
                    ("behind", "Behind", "Proxies to which a change is on its way."),
                    ("refusing", "Refusing", "Proxies that refuse a resource, and keep the version before."),
                    ("failed", "Failed", "Proxies of which a part cannot be made, by a fault in Koguma."),
                    ("over limit", "Over limit", "Proxies without some part, because documents exceed a limit."),
                    ("offline", "Offline", "Registered proxies that are connected to no control plane."),
                    ("unknown", "Unknown", "Proxies that only a silent control plane could tell of."),
                )
            ),
        ),
        PanelRow(
            "In time",
            (
                panel(
                    "Proxies",
                    "All registered proxies, by how they are.",
                    "short",
                    (f"sum by (state) (koguma_dataplanes{{{_OF_MESH}}})", "{{state}}"),
                    width=12,
                ),
                panel(
                    "The longest behind",
                    "For how long the proxy has been behind that has been so for the longest time.",
                    "s",
                    (f"max by (mesh) (koguma_dataplanes_behind_seconds{{{_OF_MESH}}})", "{{mesh}}"),
                    width=12,
                ),
            ),
        ),
        PanelRow(
            "Certificates and findings",
            (
                panel(
                    "The first certificate to end",
                    "What is left of the certificate that ends first. It is renewed when a fifth of its life is left.",
                    "s",
                    (f"min by (mesh) (koguma_certificates_remaining_seconds{{{_OF_MESH}}})", "{{mesh}}"),
                ),
                panel(
                    "Certificates issued",
                    "Certificates that were issued, and attempts that failed.",
                    "ops",
                    (rate("koguma_certificates_issued_total", 'job=~"$job"'), "issued"),
                    (rate("koguma_certificates_failed_total", 'job=~"$job"'), "failed"),
                ),
                panel(
                    "Findings",
                    "What koguma lint finds, by how bad it is.",
                    "short",
                    ('sum by (severity) (koguma_findings{job=~"$job"})', "{{severity}}"),
                ),
                panel(
                    "Findings by code",
                    "The reference of findings explains each code.",
                    "short",
                    ('sum by (severity, code) (koguma_findings{job=~"$job"}) > 0', ""),
                    shape="table",
                    width=12,
                ),
                panel(
                    "Findings are of",
                    "How long ago it was looked for findings.",
                    "s",
                    ('time() - max(koguma_findings_timestamp_seconds{job=~"$job"})', "ago"),
                    width=12,
                ),
            ),
        ),
    ),
)
