"""MeshPassthrough: what a proxy lets through to places that are no services of the mesh.

    passthroughMode             of a transparent proxy's passthrough listener: who gets through; else, with matches,
                                those, and without any whom the Mesh's `networking.outbound.passthrough` lets through
    appendMatch                 Listener.filter_chain_matcher, of all policies together; in the mode Matched
    appendMatch[].type          of the value:
    appendMatch[].value         of an IP or CIDR DestinationIPInput; of a Domain ServerNameInput or VirtualHost.domains
    appendMatch[].port          DestinationPortInput
    appendMatch[].protocol      TcpProxy or HttpConnectionManager; TransportProtocolInput, ApplicationProtocolInput

It acts where a machine redirects its traffic to the proxy, and nowhere else.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, Literal

from cp.model.hosts import is_ip
from cp.model.numbers import Integer
from cp.model.violation import Violation, at
from cp.policies import Policy, in_spec
from cp.resources import deprecated
from cp.resources.checks import absent, is_address, must_be_set, port, repeated
from cp.resources.complete import completed
from cp.resources.kinds import DocumentMeta, Kind, PolicyShape
from cp.resources.schema import Schema
from cp.resources.spec import PolicySpec
from cp.resources.targets import AllowedTargets
from generators.proxy import Capture, Exit, Passthrough


class PassthroughMatch(Schema, frozen=True):
    type: Literal["Domain", "IP", "CIDR"] | None = None
    value: str = ""
    port: Integer | None = None
    protocol: Literal["tcp", "tls", "grpc", "http", "http2", "mysql"] | None = None


class Conf(Schema, frozen=True):
    passthrough_mode: Literal["All", "Matched", "None"] | None = None
    append_match: list[PassthroughMatch] | None = None


class Spec(PolicySpec, frozen=True):
    default: Conf | None = None


TARGETS: Final = AllowedTargets(top=("Mesh", "Dataplane", "MeshSubset"))

_READ_AS_HTTP: Final = ("grpc", "http", "http2")
_WITHOUT_NAMES: Final = frozenset({"tcp", "mysql"})
_PART_OF_A_LABEL: Final = re.compile(r"\*[^.]+.*")


@in_spec
def validate(spec: Spec, meta: DocumentMeta) -> Iterator[Violation]:
    yield from TARGETS.violations(spec, meta)
    matches = (spec.default.append_match if spec.default else None) or []
    for index, match in enumerate(matches):
        yield from at(f"default.appendMatch[{index}]", _match(match))
    yield from at("default.appendMatch", _conflicts(matches))


def _match(match: PassthroughMatch) -> Iterator[Violation]:
    protocol = match.protocol or "tcp"
    yield from must_be_set("type", match.type, "Domain, IP or CIDR")
    yield from port("port", match.port)
    if protocol == "mysql" and match.port is None:
        yield absent("port", "must be set for mysql", "for example `3306`")
    if match.type == "CIDR" and not _is_network(match.value):
        yield Violation("value", f"`{match.value}` is not a CIDR", "write for example `10.0.0.0/8`")
    if match.type == "IP" and not is_ip(match.value):
        yield Violation("value", f"`{match.value}` is not an IP address", "write `type: Domain` for a name")
    if match.type == "Domain":
        yield from _domain(match, protocol)


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return "/" in text


def _domain(match: PassthroughMatch, protocol: str) -> Iterator[Violation]:
    if protocol in _WITHOUT_NAMES:
        hint = "write `type: IP`, or a protocol that tells the name: tls, http, http2 or grpc"
        yield Violation("protocol", f"{protocol} does not tell for which domain it is", hint)
    bare = match.value.removeprefix("*.")
    if _PART_OF_A_LABEL.fullmatch(match.value):
        yield Violation(
            "value", f"in `{match.value}` the `*` stands for a part of a label", "it can stand for a whole one"
        )
    elif not bare.startswith("*") and (is_ip(bare) or not is_address(bare)):
        yield Violation("value", f"`{match.value}` is not a domain", "write `type: IP` for an address")
    if match.port is None and match.value.startswith("*") and protocol in _READ_AS_HTTP:
        yield absent("port", f"must be set for a domain with `*` and {protocol}")


def _conflicts(matches: list[PassthroughMatch]) -> Iterator[Violation]:
    """Matches of one port share a listener, which speaks one protocol."""
    spoken: dict[int, str] = {}
    for index, match in enumerate(matches):
        protocol = match.protocol or "tcp"
        if match.port is None:
            continue
        if protocol in _READ_AS_HTTP and spoken.get(match.port, protocol) != protocol:
            hint = "write the same protocol in both, or use another port"
            yield Violation(f"[{index}].port", f"{spoken[match.port]} is spoken on the port {match.port} already", hint)
        else:
            spoken[match.port] = protocol
    known = [(match.port, match.protocol or "tcp", match.value) for match in matches]
    for index in repeated(known):
        if matches[index].port is not None:
            yield Violation(f"[{index}].value", f"`{matches[index].value}` stands here twice", "remove one of them")


def deprecations(spec: Spec, _meta: DocumentMeta) -> Iterator[Violation]:
    return deprecated.top_kind(spec)


class MeshPassthrough(Policy[Conf]):
    kind = Kind(
        name="MeshPassthrough",
        short="mp",
        plural="meshpassthroughs",
        schema=Spec,
        validate=validate,
        deprecations=deprecations,
        complete=completed({"default.appendMatch[].protocol": "tcp"}),
        policy=PolicyShape(single=True),
    )
    order = 500
    conf = Conf
    targets = TARGETS

    def capture(self, conf: Conf, capture: Capture) -> Capture:
        if conf.passthrough_mode is None and conf.append_match is None:
            return capture
        mode = Passthrough(conf.passthrough_mode or "Matched")
        matches = (conf.append_match or ()) if mode is Passthrough.MATCHED else ()
        return replace(capture, passthrough=mode, exits=tuple(sorted({_exit(match) for match in matches})))

    def fields_without_effect(self, confs: Sequence[Conf]) -> Iterator[Violation]:
        modes = {conf.passthrough_mode or "Matched" for conf in confs}
        if "Matched" not in modes:
            mode = f"the mode is {' or '.join(sorted(modes))} for every proxy that it is for"
            hint = "remove it, or write `passthroughMode: Matched`"
            yield Violation("appendMatch", f"changes nothing: {mode}, and matches count in Matched", hint)


def _exit(match: PassthroughMatch) -> Exit:
    """The exit of a match. Two matches with the same meaning get equal exits, however they are written."""
    port, protocol = match.port or 0, match.protocol or "tcp"
    if match.type == "Domain":
        domain = "*" if not match.value.strip("*.") else match.value.lower().removesuffix(".")
        return Exit(domain=domain, port=port, protocol=protocol)
    return Exit(network=str(ipaddress.ip_network(match.value, strict=False)), port=port, protocol=protocol)


POLICY = MeshPassthrough()
