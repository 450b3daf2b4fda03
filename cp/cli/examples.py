"""Examples of each command: for its help, for the manual and for the documentation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class CommandExample:
    """A command line without its first word `koguma`, and what it does."""

    line: str
    purpose: str


_Examples = tuple[CommandExample, ...]


def example_lines(words: tuple[str, ...]) -> Iterator[str]:
    """The examples of a command as the lines of a shell; none if there are none."""
    for example in EXAMPLES.get(words, ()):
        yield f"# {example.purpose}"
        yield f"koguma {example.line}"


def _examples(*pairs: tuple[str, str]) -> _Examples:
    return tuple(CommandExample(line, purpose) for line, purpose in pairs)


EXAMPLES: Final[Mapping[tuple[str, ...], _Examples]] = {
    ("run",): _examples(
        ("run", "Serve proxies, with everything in KUMA_GENERAL_WORK_DIR."),
        ("run --store dir:mesh", "Serve the files in a folder, and follow every edit."),
        ("run --config /etc/koguma/koguma.yaml", "Take every setting from a file."),
    ),
    ("dp", "run"): _examples(
        ("dp run --dataplane-file web.yaml", "Register the Dataplane in a file, and run its Envoy."),
        (
            "dp run --name web-1 --cp-address https://koguma.example:5682 --dataplane-token-file web.token",
            "Run the Envoy of a stored Dataplane, against a control plane that asks for tokens.",
        ),
    ),
    ("dp", "grpc-bootstrap"): _examples(
        ("dp grpc-bootstrap orders-1 > bootstrap.json", "Write the file that GRPC_XDS_BOOTSTRAP names."),
    ),
    ("dp", "certificates"): _examples(
        ("dp certificates orders-1 --dir /run/orders", "Keep the certificate of a gRPC client in a folder."),
    ),
    ("validate",): _examples(
        ("validate -f mesh.yaml", "Check a file."),
        ("validate -f mesh -o json", "Check a folder, for a program."),
    ),
    ("access", "check"): _examples(
        ("access check access.yaml", "See what each right in a file is worth."),
        ("access check --config /etc/koguma/koguma.yaml --strict", "Stop an upgrade if rights would cover less."),
    ),
    ("lint",): _examples(
        ("lint", "Look at all meshes of the control plane."),
        ("lint -f mesh --strict", "Look at files in a pipeline, and fail for warnings too."),
    ),
    ("render",): _examples(
        ("render web-1", "Show what a proxy is served."),
        ("render web-1 --from-envoy", "Show what its Envoy says that it has."),
        ("render web-1 --type clusters -f mesh", "Show the clusters that files would produce."),
    ),
    ("inspect",): _examples(
        ("inspect dataplanes", "Show all proxies, and whether they have what they should have."),
        ("inspect dataplanes --watch", "The same, again whenever something changes."),
        ("inspect dataplane web-1", "Show what one proxy was sent, and what it rejected."),
        ("inspect rules web-1", "Show the rules of a proxy with their origins."),
        ("inspect dataplane web-1 --clusters", "Ask its Envoy for endpoints, with their health and requests."),
        ("inspect dataplane web-1 --stats --filter '_5xx$'", "Ask its Envoy for some counters."),
        ("inspect dataplane web-1 --config-dump --type listeners", "Ask its Envoy for the listeners that it has."),
        ("inspect meshtimeout slow-backend", "Show where a policy has effect, and where not."),
    ),
    ("log-level",): _examples(
        ("log-level web-1 debug --for 10m", "Let an Envoy log more for ten minutes."),
        ("log-level web-1", "Show the level that its log has."),
    ),
    ("explain",): _examples(
        ("explain web-1 backend/cart", "Explain where a call goes, with which values, and why."),
        ("explain web-1 'POST http://backend:80/cart' -H 'x-user: ann'", "The same with a method and a header."),
    ),
    ("apply",): _examples(
        ("apply -f mesh.yaml", "Create or update what is in a file."),
        ("apply -f mesh --dry-run", "Show what would change."),
        ("apply -f mesh --wait", "Wait until every proxy that it affects has accepted it."),
        ("apply -f mesh --managed-by git --prune", "Delete what an earlier push of the same name had."),
        ("apply -f mesh --no-preflight", "Write without asking an Envoy first, such as when it does not start."),
        ("apply -f mesh --rollout 1,10%,100% --hold 30s --until '5xx < 1%'", "Serve a change to some proxies first."),
    ),
    ("plan",): _examples(
        ("plan -f mesh", "Show what it would do to apply a folder."),
        ("plan --from main --to branch -o markdown --out plan.markdown", "Compare two folders, for a pull request."),
        ("plan --from main --to branch --preflight", "Have an Envoy of this machine look at what is new."),
        ("plan -f mesh --check", "End with status 3 if something would change."),
        ("plan --from 12 --to 15", "Show what came of the changes between two revisions."),
    ),
    ("get",): _examples(
        ("get meshes", "List the meshes."),
        ("get meshtimeouts --mesh shop", "List the resources of a type in a mesh."),
        ("get dataplane web-1 -o yaml", "Print a resource so that it can be edited and applied."),
        ("get dataplanes --watch", "List them again whenever something changes."),
    ),
    ("delete",): _examples(
        ("delete meshtimeout slow-backend", "Delete a resource."),
        ("delete -f mesh.yaml", "Delete what is in a file."),
    ),
    ("history",): _examples(
        ("history", "Show the newest changes."),
        ("history meshtimeout slow-backend", "Show the changes of one resource."),
    ),
    ("diff",): _examples(
        ("diff 41", "Show what is different since revision 41."),
        ("diff dataplane web-1", "Show where what an Envoy has is not what it should have."),
        ("diff 41 44 --proxies", "Show what proxies are served differently at revision 44."),
    ),
    ("rollback",): _examples(
        ("rollback 41 --dry-run", "Show what a way back to revision 41 would change."),
        ("rollback 41 --only meshtimeout/slow-backend --wait", "Bring one resource back, and wait for the proxies."),
    ),
    ("rollout", "list"): _examples(("rollout list", "Show what is rolled out, in all meshes.")),
    ("rollout", "show"): _examples(
        ("rollout show", "Show how far the rollout of the mesh default has come."),
        ("rollout show --mesh shop --follow", "Watch a rollout until its end."),
    ),
    ("rollout", "pause"): _examples(("rollout pause --mesh shop", "Leave a rollout where it is.")),
    ("rollout", "continue"): _examples(("rollout continue --mesh shop", "Continue a rollout that was paused.")),
    ("rollout", "abort"): _examples(
        ("rollout abort --mesh shop", "End a rollout: its proxies go back to what is stored.")
    ),
    ("export",): _examples(
        ("export > all.yaml", "Print all resources that have no secrets in them."),
        ("export --write mesh --secrets", "Write a file for each mesh, with secrets."),
    ),
    ("migrate",): _examples(
        ("migrate shop", "Show what would be different after a move from legacy policies."),
        ("migrate shop -f mesh --write new", "Write the new policies of files into a folder."),
    ),
    ("import",): _examples(
        ("import kuma.yaml --dry-run", "Show what an export from Kuma would come to."),
        ("import http://kuma.example:5681 --mesh shop", "Bring one mesh from a Kuma control plane."),
    ),
    ("backup",): _examples(
        ("backup --config /etc/koguma/koguma.yaml monday.db", "Copy the store that these settings name."),
    ),
    ("restore",): _examples(
        ("restore --config /etc/koguma/koguma.yaml monday.db --replace", "Put a backup in its place, and keep it."),
    ),
    ("store", "copy"): _examples(
        ("store copy sqlite:///koguma.db postgresql://koguma@db.example/mesh", "Move from a file to a database."),
    ),
    ("generate", "dataplane-token"): _examples(
        ("generate dataplane-token --name web-1 --valid-for 720h > web.token", "For one proxy, good for a month."),
        ("generate dataplane-token --tag kuma.io/service=web --valid-for 24h", "For every proxy of a service."),
    ),
    ("generate", "user-token"): _examples(
        ("generate user-token --name ann --group team-shop --valid-for 24h", "For a person in a group."),
    ),
    ("generate", "zone-token"): _examples(
        ("generate zone-token --zone east --scope ingress --valid-for 24h", "For the ingress of a zone."),
    ),
    ("generate", "signing-key"): _examples(
        ("generate signing-key > key.pem", "Make a key that signs tokens."),
    ),
    ("generate", "monitoring"): _examples(
        ("generate monitoring --into monitoring", "Dashboards, alerts and an example of a configuration."),
    ),
    ("generate", "public-key"): _examples(
        ("generate public-key --signing-key-path key.pem", "Print what a control plane verifies tokens with."),
    ),
    ("generate", "tls-certificate"): _examples(
        (
            "generate tls-certificate --type server --hostname koguma.example",
            "Write key.pem and cert.pem for a server.",
        ),
    ),
    ("generate", "secrets-key"): _examples(
        ("generate secrets-key /etc/koguma/secrets.keys", "Add a key to a file of keys; it encrypts from then on."),
    ),
    ("secrets", "encrypt"): _examples(
        ("secrets encrypt --dry-run", "Count what is not encrypted with the first key."),
        ("secrets encrypt", "Encrypt it."),
    ),
    ("config", "control-planes", "add"): _examples(
        (
            "config control-planes add --name prod --address https://koguma.example:5682 --token-file prod.token",
            "Remember a control plane, and use it from now on.",
        ),
    ),
    ("config", "control-planes", "list"): _examples(
        ("config control-planes list", "Show which control planes are known, and which is used."),
    ),
    ("config", "control-planes", "switch"): _examples(
        ("config control-planes switch --name prod", "Use another control plane from now on."),
    ),
    ("config", "control-planes", "remove"): _examples(
        ("config control-planes remove --name prod", "Forget a control plane, and its token."),
    ),
    ("config", "view"): _examples(("config view", "Print the file, without what is secret in it.")),
    ("completion",): _examples(
        ("completion bash > ~/.local/share/bash-completion/completions/koguma", "Teach bash, for your user."),
        ("completion fish > ~/.config/fish/completions/koguma.fish", "Teach fish."),
    ),
    ("version",): _examples(
        ("version", "Print the version."),
    ),
}
"""By the words of the command."""
