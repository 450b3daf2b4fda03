"""Every command: its module, and the line that stands for it in a list of commands.

Nothing is imported for it, so that a list of commands, or what a shell completes, waits for no command (record 0092).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

Words = tuple[str, ...]
"""A command as it is typed, such as `("dp", "run")`."""


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """A command: the module and the name of its function, and its line in a list of commands."""

    module: str
    function: str
    summary: str


COMMANDS: Final[Mapping[Words, CommandEntry]] = {
    ("run",): CommandEntry("cp.cli.run", "run", "Run the control plane, in the foreground."),
    ("dp", "run"): CommandEntry("cp.cli.dp", "run", "Run Envoy as the proxy of a Dataplane."),
    ("dp", "grpc-bootstrap"): CommandEntry("cp.cli.dp", "grpc_bootstrap", "Print the bootstrap of a gRPC client."),
    ("dp", "certificates"): CommandEntry("cp.cli.dp", "certificates", "Keep the certificate of a gRPC client fresh."),
    ("validate",): CommandEntry("cp.cli.validate", "validate", "Check files without a control plane."),
    ("lint",): CommandEntry("cp.cli.lint", "lint", "Report what is wrong, has no effect, or cannot work."),
    ("render",): CommandEntry("cp.cli.render", "render", "Show the Envoy configuration of a proxy."),
    ("inspect",): CommandEntry(
        "cp.cli.inspect", "inspect", "Show what proxies have accepted, or where a policy has effect."
    ),
    ("log-level",): CommandEntry("cp.cli.envoys", "log_level", "Let the Envoy of a proxy log more for a time."),
    ("explain",): CommandEntry("cp.cli.explain", "explain", "Explain a call: where it goes, and why."),
    ("apply",): CommandEntry("cp.cli.resources", "apply", "Create or update resources from files."),
    ("plan",): CommandEntry("cp.cli.plan", "plan", "Show what a change would do, before it is made."),
    ("get",): CommandEntry("cp.cli.get", "get", "Show the resources of a type, or one of them."),
    ("delete",): CommandEntry("cp.cli.resources", "delete", "Delete a resource, or all resources in some files."),
    ("history",): CommandEntry("cp.cli.past", "history", "Show who changed what, and when."),
    ("diff",): CommandEntry("cp.cli.past", "diff", "Show what is different since a revision, or in an Envoy."),
    ("rollback",): CommandEntry("cp.cli.past", "rollback", "Bring resources back to how they were at a revision."),
    ("rollout", "list"): CommandEntry("cp.cli.rollouts", "listing", "Show the rollouts of all meshes."),
    ("rollout", "show"): CommandEntry(
        "cp.cli.rollouts", "show", "Show the rollout of a mesh, and how far it has come."
    ),
    ("rollout", "pause"): CommandEntry("cp.cli.rollouts", "pause", "Leave a rollout where it is."),
    ("rollout", "continue"): CommandEntry("cp.cli.rollouts", "continue_", "Continue a paused rollout."),
    ("rollout", "abort"): CommandEntry("cp.cli.rollouts", "abort", "End a rollout, and bring its proxies back."),
    ("export",): CommandEntry("cp.cli.export", "export", "Print all resources, to be applied again."),
    ("migrate",): CommandEntry("cp.cli.migrate", "migrate", "Write policies with a targetRef in place of legacy ones."),
    ("import",): CommandEntry("cp.cli.import_mesh", "import_mesh", "Bring whole meshes from Kuma."),
    ("backup",): CommandEntry(
        "cp.cli.backup", "backup", "Copy the store to a file, also while the control plane runs."
    ),
    ("restore",): CommandEntry("cp.cli.backup", "restore", "Put a backup in the place of the store."),
    ("store", "copy"): CommandEntry("cp.cli.store_copy", "copy", "Copy all resources from one store to another."),
    ("generate", "dataplane-token"): CommandEntry(
        "cp.cli.generate", "dataplane_token", "Print a token with which a proxy gets its configuration."
    ),
    ("generate", "user-token"): CommandEntry(
        "cp.cli.generate", "user_token", "Print a token with which a person calls the HTTP API."
    ),
    ("generate", "zone-token"): CommandEntry(
        "cp.cli.generate", "zone_token", "Print a token for the services of a zone."
    ),
    ("generate", "signing-key"): CommandEntry(
        "cp.cli.generate", "signing_key", "Print a new key that can sign tokens."
    ),
    ("generate", "public-key"): CommandEntry(
        "cp.cli.generate", "public_key", "Print the public half of a signing key."
    ),
    ("generate", "tls-certificate"): CommandEntry(
        "cp.cli.certificates", "tls_certificate", "Write a certificate that signs itself, and its key."
    ),
    ("generate", "monitoring"): CommandEntry(
        "cp.cli.monitoring", "monitoring", "Write dashboards and alerts for Grafana and Prometheus."
    ),
    ("access", "check"): CommandEntry(
        "cp.cli.access", "check", "Show the worst that each right in a file lets its holders do."
    ),
    ("secrets", "encrypt"): CommandEntry(
        "cp.cli.secrets", "encrypt", "Encrypt all secrets in the store with the first key."
    ),
    ("generate", "secrets-key"): CommandEntry(
        "cp.cli.secrets", "generate_key", "Make a key for the secrets in the store."
    ),
    ("config", "control-planes", "add"): CommandEntry(
        "cp.cli.config", "add", "Remember a control plane, and ask it from now on."
    ),
    ("config", "control-planes", "list"): CommandEntry(
        "cp.cli.config", "list_", "List the control planes that are remembered."
    ),
    ("config", "control-planes", "switch"): CommandEntry(
        "cp.cli.config", "switch", "Ask another control plane from now on."
    ),
    ("config", "control-planes", "remove"): CommandEntry("cp.cli.config", "remove", "Forget a control plane."),
    ("config", "view"): CommandEntry("cp.cli.config", "view", "Print the file of control planes."),
    ("completion",): CommandEntry(
        "cp.cli.completion", "completion", "Print a script with which a shell completes command lines."
    ),
    ("version",): CommandEntry("cp.cli.main", "version", "Print the version."),
}
GROUPS: Final[Mapping[Words, str]] = {
    ("dp",): "Proxies beside workloads.",
    ("generate",): "Tokens, the keys that sign them, certificates, and what monitoring needs.",
    ("rollout",): "Changes that some proxies get first (koguma apply --rollout).",
    ("store",): "Where resources are kept.",
    ("config",): "Which control planes there are, and which of them is asked.",
    ("config", "control-planes"): "The control planes that are remembered.",
    ("secrets",): "How secrets are kept in the store.",
    ("access",): "The rights of users.",
}
