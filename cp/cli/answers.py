"""What each command prints with `-o json`: the documentation has it, and a test compares it with what is printed.

A field that is here stays, with its meaning. Others may come beside it (record 0092).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

Words = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AnswerField:
    """A field of the object that a command prints."""

    name: str
    kind: str
    meaning: str
    always: bool = True
    """Whether it is there in every answer."""


@dataclass(frozen=True, slots=True)
class CommandAnswer:
    """What a command prints: an object with these fields, as the page of the HTTP API has it where it says so."""

    title: str
    fields: tuple[AnswerField, ...] = ()
    page: str = ""
    """Where the rest of it is described."""


def _object(title: str, *fields: tuple[str, str, str], page: str = "") -> CommandAnswer:
    """Fields whose name ends in `?` are not in every answer."""
    parsed = (AnswerField(name.rstrip("?"), kind, text, not name.endswith("?")) for name, kind, text in fields)
    return CommandAnswer(title, tuple(parsed), page)


_API: Final = "http-api.md"
_RESOURCES: Final = (
    "resources",
    "list",
    (
        "for each resource its `type`, `mesh` (unless it is in none), `name` and `outcome`; with `--dry-run` and "
        "`--rollout` the outcome that a write would have"
    ),
)
_DELIVERY: Final = (
    "delivery",
    "object or null",
    (
        "with `--wait`: the last progress of `/_delivery`, so `proxies`, `have`, `refusing`, `waiting`, or nothing of "
        "it where the control plane ended before; otherwise null"
    ),
)
_PREFLIGHT: Final = (
    "preflight?",
    "list",
    "where an Envoy was asked: for each request its answer, as the [HTTP API](http-api.md#plans) has it",
)
_TOKEN: Final = _object("a token", ("token", "text", "the token"))
_KEY: Final = _object("a key", ("key", "text", "the key, in PEM"))
_CONTROL_PLANE: Final = _object(
    "a control plane", ("name", "text", "its name"), ("address", "text", "the URL of its HTTP API")
)

_ROLLOUT: Final = _object(
    "the rollout of a mesh",
    ("mesh", "text", "the mesh"),
    ("number", "number", "the number of the rollout"),
    ("state", "text", "`Going`, `Holding`, `Paused`, `Done`, `RolledBack` or `Aborted`"),
    ("underWay", "boolean", "whether it has not ended: it is `Going`, `Holding` or `Paused`"),
    ("step", "number", "its step, from 1; 0 before the first"),
    ("proxies", "list", "the names of those that are served it, or were at its end"),
    ("resources", "list", "what it changes"),
    ("reason", "text or null", "why it ended, who paused it, or what it waits for"),
    page=_API,
)

NO_ANSWER: Final[Mapping[Words, str]] = {
    ("run",): "It runs until it is ended, and writes a log (`--log-format json`).",
    ("dp", "run"): "It runs until its Envoy has ended.",
    ("dp", "certificates"): "It runs until it is ended.",
    ("completion",): "It prints a script for a shell.",
}
"""Commands without an answer, and why."""

ANSWERS: Final[Mapping[Words, CommandAnswer]] = {
    ("dp", "grpc-bootstrap"): _object(
        "the bootstrap of a gRPC client",
        ("xds_servers", "list", "the control planes"),
        ("node", "object", "how the client calls itself"),
        ("certificate_providers?", "object", "the files of its certificate"),
        ("server_listener_resource_name_template?", "text", "the names of its listeners"),
    ),
    ("validate",): _object(
        "the errors and warnings of some files",
        ("valid", "boolean", "whether all resources are"),
        ("documents", "number", "how many there are"),
        ("violations", "list", "errors, each with `resource`, `field`, `message`, `hint`, `file`, `line`"),
        ("warnings", "list", "warnings, in the same form"),
    ),
    ("access", "check"): _object(
        "the rights in a file",
        (
            "rights",
            "list",
            (
                "each with `place`, `users`, `groups`, `may`, `meshes` and `kinds` (null: all), the `worst` that its "
                "holders `can` do and by which `kind` (null: it writes nothing), the kinds that are `notCovered` "
                "because it names none, those of them that earlier versions covered (`lost`), and the right `toGrant` "
                "these"
            ),
        ),
        ("administrators", "object", "the `users` and `groups` that may do everything"),
        ("administratorsOnly", "list", "kinds that no right names and that a right has to name to be written"),
    ),
    ("lint",): _object(
        "all findings",
        ("findings", "list", "each with `code`, `severity`, `resource`, `message`, `file`, `line`, `path`, `hint`"),
        ("errors", "number", "how many of them are errors"),
        ("warnings", "number", "how many are warnings"),
        ("infos", "number", "how many are neither"),
        ("meshesNotTold?", "list", "meshes that you may read and not inspect: findings are not about them"),
        ("notLookedAt?", "list", "sentences on rollouts that are under way: findings are about what is stored"),
        page=_API,
    ),
    ("render",): _object(
        "Envoy resources by type and name; with `--type` those of that type, by name",
        *((f"{name}?", "object", f"{name} by name") for name in ("listeners", "routes", "clusters", "endpoints")),
        *((f"{name}?", "object", f"{name} by name") for name in ("secrets", "runtime")),
    ),
    ("inspect",): _object(
        "what the API answers on the same question: `_overview`, `_delivery`, `_rules`, `_policies`, `_instances`, "
        "`_resources/dataplanes`, `_envoy`",
        (
            "items?",
            "list",
            "proxies, control planes, or the effects of a policy: for each proxy with its `status`",
        ),
        ("total?", "number", "how many"),
        ("next?", "text or null", "always null: all pages are read"),
        ("rules?", "list", "the rules of a proxy"),
        ("policies?", "list", "the policies of a proxy"),
        ("rollout?", "text", "what a rollout that is under way means for a proxy"),
        (
            "notLookedAt?",
            "list",
            "sentences on rollouts that are under way, for a policy: effects are of what is stored",
        ),
        page=_API,
    ),
    ("log-level",): _object(
        "the level at which an Envoy logs",
        ("level", "text", "the level that most loggers have"),
        ("loggers?", "object", "the levels of the others"),
        ("setBackIn?", "number or null", "seconds until it is as before; null where it is"),
        page=_API,
    ),
    ("explain",): _object(
        "the route of a call, with all values and limits",
        ("call", "object", "the call as it was understood"),
        ("proxy", "object", "the caller"),
        ("outcome", "object", "where the call goes, or what it is answered with"),
        ("rows", "list", "the routes in the order in which they are tried"),
        ("backends", "list", "where it goes, with shares, endpoints and values"),
        (
            "values",
            "list",
            "values in the route and the listener, also without effect: who set each, what it overrides",
        ),
        ("hops", "list", "the limits of both sides"),
        ("status?", "text", "that of the proxy, as `koguma inspect dataplanes` has it; not for files"),
        ("refused?", "list", "sentences on what the proxy refuses, of what it was sent"),
        page=_API,
    ),
    ("apply",): _object(
        "what was written",
        _RESOURCES,
        _DELIVERY,
        _PREFLIGHT,
        (
            "rollout?",
            "object or null",
            "with `--rollout`: the last one of the mesh, as `koguma rollout show` has it, or null",
        ),
    ),
    ("rollout", "list"): _object(
        "the rollout of each mesh", ("items", "list", "each as `koguma rollout show` has it"), page=_API
    ),
    **{("rollout", command): _ROLLOUT for command in ("show", "pause", "continue", "abort")},
    ("plan",): _object(
        "what a change would do",
        ("empty", "boolean", "whether it would change no resource"),
        ("documents", "list", "the resources that would be different"),
        ("meshes", "list", "for each mesh which proxies it reaches, and how"),
        ("findings", "object", "`appearing` and `vanishing`"),
        ("notCompared", "list", "what the plan cannot know"),
        (
            "rollouts?",
            "list",
            (
                "with `-f`: the rollouts that are under way where something would be written, each in a sentence, also "
                "where nothing would change: some proxies may be served something else than what is stored"
            ),
        ),
        ("preflight?", "object", "what an Envoy says, with `--preflight`"),
        page=_API,
    ),
    ("get",): _object(
        "a resource as the API has it or, without a name, all of a type",
        ("items?", "list", "the resources"),
        ("total?", "number", "how many there are"),
        ("next?", "text or null", "the URL of the next page; null where all are there"),
        ("type?", "text", "the type of one resource"),
        ("name?", "text", "its name"),
        page=_API,
    ),
    ("delete",): _object("what was deleted", _RESOURCES, _DELIVERY, _PREFLIGHT),
    ("history",): _object(
        "changes, the newest first",
        ("items", "list", "each with `revision`, `time`, `author`, `origin`, `change`, `type`, `mesh`, `name`"),
        ("next", "number or null", "the revision for `--before`"),
        ("oldest", "number", "the oldest revision to go back to"),
        ("leftOut", "number", "changes of proxies that are not among them"),
        ("stepsLeftOut", "number", "changes that say how far a rollout has come and are not among them"),
        page=_API,
    ),
    ("diff",): _object(
        "what is different between two revisions",
        ("from?", "number", "the first revision"),
        ("to?", "number", "the second"),
        ("changes?", "list", "each with `type`, `mesh`, `name`, `change`, and `before` and `after` where it was there"),
        ("compared?", "object", "with `dataplane`: how many resources of each type an Envoy was asked for"),
        ("differences?", "list", "with `dataplane`: each with `type`, `name` and `state`"),
        ("meshes?", "list", "with `--proxies`: for each mesh what proxies would be served differently"),
        page=_API,
    ),
    ("rollback",): _object(
        "what was brought back",
        _RESOURCES,
        ("rolledBackTo", "number", "the revision"),
        ("leftOut", "list", "resources that stay as they are, each with a `reason`"),
        _DELIVERY,
        _PREFLIGHT,
    ),
    ("export",): _object(
        "all resources; with `--write` where they are",
        ("resources", "list or number", "the resources, or how many were written"),
        ("revision", "number", "the revision of all of them"),
        ("hidden?", "list", "those that were left out, as they have secrets"),
        ("own?", "list", "those that were left out, as only the control plane writes them"),
        ("unreadable?", "list", "those that were left out, as they cannot be decrypted"),
        ("folder?", "text", "where files were written"),
        page=_API,
    ),
    ("migrate",): _object(
        "what a move comes to",
        ("mesh", "text", "the mesh"),
        ("proxies", "list", "those that were compared"),
        ("comparable", "boolean", "whether there was any, or nothing to compare"),
        ("equal", "boolean", "whether each is served the same bytes; false where that is not known of one"),
        ("safe", "boolean", "whether each does the same, and every policy could be moved as a whole; false as above"),
        ("new", "list", "the new policies"),
        ("replaced", "list", "those that go: new ones take their place, or none has to"),
        ("kept", "list", "those that stay, each with a `reason`"),
        ("notes", "list", "what to look at"),
        ("differences", "list", "each with `causes`, `proxies`, `type`, `name` and `fields`"),
        (
            "failed",
            "list",
            (
                "faults of Koguma, by which it is not known what a proxy is served: each with its `proxy`, whether "
                "that was `compared` in all else, and a `message`"
            ),
        ),
        ("gone?", "list", "with `--to`: what that version does not have"),
    ),
    ("import",): _object(
        "what was imported",
        _RESOURCES,
        ("notes", "list", "what was assumed"),
        ("willNotWork", "list", "what Koguma does not do of all this, with the reason"),
        ("delivery", "null", "nothing is waited for"),
        _PREFLIGHT,
    ),
    ("backup",): _object("a copy", ("store", "text", "what was copied"), ("file", "text", "where the copy is")),
    ("restore",): _object(
        "a store in its place",
        ("store", "text", "the store"),
        ("revision", "number", "the revision that it is at"),
        ("kept", "text or null", "where what was there before is now"),
    ),
    ("store", "copy"): _object(
        "a copy",
        ("resources", "number", "how many were copied"),
        ("revision", "number", "the revision at which they were read"),
        ("store", "text", "where they are"),
    ),
    ("generate", "dataplane-token"): _TOKEN,
    ("generate", "user-token"): _TOKEN,
    ("generate", "zone-token"): _TOKEN,
    ("generate", "signing-key"): _KEY,
    ("generate", "public-key"): _KEY,
    ("generate", "tls-certificate"): _object(
        "a certificate",
        ("keyFile", "text", "where its key is"),
        ("certFile", "text", "where the certificate is"),
    ),
    ("generate", "monitoring"): _object("what was written", ("files", "list", "the paths of the files")),
    ("generate", "secrets-key"): _object(
        "a key",
        ("id", "text", "its name"),
        ("key?", "text", "the line for a file of keys, if none was named"),
        ("file?", "text", "the file whose first key it is"),
    ),
    ("secrets", "encrypt"): _object(
        "what was encrypted",
        ("encrypted", "object or null", "`documents`, `changes` and `discarded`; null with `--dry-run`"),
        (
            "left",
            "object",
            "how many there are now: `inOrder`, `old`, `plain`, `unreadable`, `plainChanges`, `oldChanges`",
        ),
    ),
    ("config", "control-planes", "add"): _CONTROL_PLANE,
    ("config", "control-planes", "list"): _object(
        "the control planes that are remembered",
        ("items", "list", "each with `active`, `name`, `address`, and `token`: `kept`, `file` or `none`"),
    ),
    ("config", "control-planes", "switch"): _CONTROL_PLANE,
    ("config", "control-planes", "remove"): _CONTROL_PLANE,
    ("config", "view"): _object(
        "the file ~/.koguma/config, with `[redacted]` for each value that is or may be secret",
        ("controlPlanes", "list", "each with `name` and `coordinates`"),
        ("contexts", "list", "each with `name` and `controlPlane`"),
        ("currentContext", "text", "the one that is asked"),
    ),
    ("version",): _object("the version", ("version", "text", "the version")),
}
"""By the words of the command."""
