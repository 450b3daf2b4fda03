"""Every code that a finding can have, how bad it is, and what it means. Codes stay what they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from cp.model.violation import Finding, Severity, Violation
from cp.resources.parse import finding
from cp.resources.resource import Resource

NO_EFFECT: Final = "has no effect"
"""With this the message of a finding begins that is about a whole policy: nothing changes if it is removed."""

NO_EFFECT_OF_ITEM: Final = "this item has no effect"
"""The same for one item of a policy whose other items have some."""

NOTHING_SERVED: Final = "changes nothing that is served"
"""With this the message of a finding begins that is about an item of a policy of which values hold, but all proxies
would be served the same without the policy."""

_ERROR: Final = Severity.ERROR
_WARNING: Final = Severity.WARNING
_INFO: Final = Severity.INFO


@dataclass(frozen=True, slots=True)
class FindingCode:
    """One sort of finding."""

    severity: Severity
    meaning: str


CATALOGUE: Final[Mapping[str, FindingCode]] = MappingProxyType(
    {
        "unreadable-file": FindingCode(_ERROR, "a file cannot be read at all"),
        "file-too-large": FindingCode(_ERROR, "a file is too large to be read"),
        "not-yaml": FindingCode(_ERROR, "a file is neither YAML nor JSON"),
        "no-document": FindingCode(_ERROR, "something in a file is no resource"),
        "invalid": FindingCode(_ERROR, "a document is refused"),
        "duplicate-name": FindingCode(_ERROR, "two documents have the same type, mesh and name"),
        "refers-to-nothing": FindingCode(_ERROR, "a reference to a resource or a port that is not there"),
        "not-served": FindingCode(
            _ERROR, "a service outside the mesh that cannot be served, for example without its secret"
        ),
        "instance-silent": FindingCode(
            _WARNING, "a control plane on the same store does not answer: what its proxies have and refuse is unknown"
        ),
        "no-authority": FindingCode(
            _ERROR, "an authority of a Mesh or MeshIdentity cannot sign: proxies keep the certificates that they have"
        ),
        "no-common-cipher": FindingCode(
            _ERROR, "the versions and ciphers of a MeshTLS are none that callers and certificates can speak"
        ),
        "address-taken": FindingCode(
            _ERROR,
            "an inbound, an outbound, a listener of a gateway or a port for metrics is not served, as something else "
            "has its address and port",
        ),
        "listener-not-served": FindingCode(
            _ERROR, "a listener of a MeshGateway is not served, for example without its certificate"
        ),
        "proxy-without-gateway": FindingCode(
            _ERROR, "a Dataplane is a builtin gateway that no MeshGateway selects, so it listens at no port"
        ),
        "certificate-ended": FindingCode(_ERROR, "a certificate of a gateway has expired, and clients refuse it"),
        "zero-weights": FindingCode(_ERROR, "all backends of a rule have the weight 0"),
        "refused-by-envoy": FindingCode(_ERROR, "proxies refuse what a policy comes to, and keep the version before"),
        "failed": FindingCode(
            _ERROR, "a fault of koguma: a part of what a proxy gets cannot be made; all else is served"
        ),
        "over-limit": FindingCode(
            _ERROR, "documents exceed a limit: the parts that do not fit are left out; all else is served"
        ),
        "unwritable": FindingCode(
            _WARNING,
            "a stored document or a file is used whose content a write could not have, such as a list that is too long",
        ),
        "bad-access-file": FindingCode(
            _ERROR, "the file with rights is invalid, and the rights from before it changed stay in force"
        ),
        "unknown-by-tags": FindingCode(
            _ERROR, "a permission is for clients by their tags, and a MeshIdentity gives them certificates without any"
        ),
        "too-many-clients": FindingCode(_ERROR, "a policy tells more sorts of clients apart than can be worked out"),
        "open-door": FindingCode(
            _WARNING, "a server of the control plane lets in, or shows to others, more than it has to"
        ),
        "preflight-unavailable": FindingCode(
            _WARNING, "the Envoy of the control plane cannot run, so no change can be checked by preflight"
        ),
        "unnamed-rights": FindingCode(
            _WARNING,
            "a right covers writes that it should name, as the control plane is set to tolerate that for an upgrade",
        ),
        "nobody-administers": FindingCode(
            _WARNING,
            "an administrator needs a token that was made before, and none was shown since the control plane started",
        ),
        "unreadable-secret": FindingCode(
            _ERROR, "an encrypted document cannot be decrypted, and what was last good stays in force"
        ),
        "secrets-by-other-hands": FindingCode(
            _ERROR, "documents with secrets are in plain text, in a store in which no Koguma has written such a one"
        ),
        "target-missing": FindingCode(_WARNING, "an item is for a resource or a port that is not there"),
        "selects-no-proxy": FindingCode(_WARNING, "a policy selects no proxy"),
        "selects-no-inbound": FindingCode(_WARNING, "an item is about inbounds, and no selected proxy has one"),
        "route-not-there": FindingCode(_WARNING, "a route is there for none of the proxies that a policy selects"),
        "overridden": FindingCode(_WARNING, "stronger policies set every field that a policy sets"),
        "hidden-by-route": FindingCode(
            _WARNING, "a value for a service holds for no request, as every route has its own"
        ),
        "routed-elsewhere": FindingCode(
            _WARNING, "a value for a service whose routes all lead to others, or to which only routes of others lead"
        ),
        "no-meaning": FindingCode(_WARNING, "a field, or a route, without a meaning for the protocol that is spoken"),
        "backend-not-http": FindingCode(
            _WARNING, "a backend of a MeshHTTPRoute is a service that is not said to speak HTTP"
        ),
        "shadowed-route": FindingCode(_WARNING, "a MeshHTTPRoute takes the place of a MeshTCPRoute"),
        "gateway-without-proxy": FindingCode(
            _WARNING, "a MeshGateway configures no Dataplane, so nobody can reach its listeners"
        ),
        "gateways-alike": FindingCode(
            _WARNING, "several MeshGateways select a Dataplane alike, and the first by name configures it"
        ),
        "no-routes": FindingCode(_WARNING, "a listener of a MeshGateway has no route"),
        "hostname-not-taken": FindingCode(_WARNING, "a hostname of a route that none of its listeners takes"),
        "certificate-ends": FindingCode(_WARNING, "a certificate of a gateway ends soon"),
        "certificate-for-others": FindingCode(
            _WARNING, "a certificate of a gateway is not for the hostname of its listener"
        ),
        "unreachable-route": FindingCode(_WARNING, "an earlier match takes every request of a later one"),
        "name-taken": FindingCode(_WARNING, "a VirtualOutbound asks for a name and port that another one has"),
        "names-nothing": FindingCode(_WARNING, "a VirtualOutbound names nothing"),
        "no-endpoints": FindingCode(_WARNING, "no inbound of any proxy serves a port of a MeshService"),
        "no-identity": FindingCode(
            _WARNING,
            "a MeshIdentity gives nobody a certificate, or has no name for a proxy that it selects; "
            "or a proxy gets none, as it has too many names by its tags",
        ),
        "not-enforced": FindingCode(_WARNING, "a document asks for what Koguma does not do yet"),
        "mtls-off": FindingCode(_WARNING, "a policy, or a part of it, has an effect only with mTLS, and there is none"),
        "nobody-may-call": FindingCode(
            _WARNING,
            "with mTLS on, no permission lets anybody call an inbound; or, in a mesh of the engine Legacy, an "
            "ExternalService",
        ),
        "permission-void": FindingCode(
            _WARNING, "a permission allows only clients that others deny, so it lets nobody in"
        ),
        "denied-and-allowed": FindingCode(
            _WARNING,
            "an item of `from` denies clients that `rules` allow, and they may call: it only takes back what `from` "
            "allows",
        ),
        "names-no-proxy": FindingCode(
            _WARNING, "a permission names a SPIFFE ID in a trust domain of its mesh, and no proxy there has it"
        ),
        "plain-text-unjudged": FindingCode(
            _WARNING, "inbounds also take plain text, for which no permission is needed"
        ),
        "plain-text-refused": FindingCode(
            _WARNING, "a Dataplane calls in plain text an inbound that takes TLS alone, so its calls fail"
        ),
        "address-shared": FindingCode(
            _WARNING, "inbounds of several services, or Dataplanes, gateways among them, have one address and port"
        ),
        "deprecated": FindingCode(_WARNING, "something that still works, and should be written otherwise"),
        "prefer-gateway": FindingCode(
            _WARNING, "a policy selects builtin gateways by something else than their MeshGateway"
        ),
        "authority-ends": FindingCode(
            _WARNING, "the authority of a mesh ends soon, and with it the certificates of its proxies"
        ),
        "trusts-more": FindingCode(
            _WARNING, "a MeshTrust adds authorities to the trust domain that the authority of its mesh signs for"
        ),
        "roots-alike": FindingCode(
            _WARNING,
            "Envoy may confuse two authorities with the same subject, and refuse clients that one of them certified",
        ),
        "move-waits": FindingCode(
            _WARNING,
            "a change of authority or mode waits for proxies that have not taken it, or passes over some that are not "
            "connected",
        ),
        "does-not-apply": FindingCode(
            _WARNING, "a policy, or a part of it, asks what cannot be done, or is about nothing"
        ),
        "no-effect": FindingCode(_WARNING, "a policy changes nothing, for more than one reason"),
        "not-called": FindingCode(_WARNING, "no proxy that a policy selects calls the service that an item is for"),
        "not-redirected": FindingCode(_WARNING, "a MeshPassthrough for proxies to which no traffic is redirected"),
        "secrets-in-plain-text": FindingCode(
            _WARNING, "the store has secrets that are not encrypted, or traces of them"
        ),
        "open-to-others": FindingCode(
            _WARNING, "other users of the machine may read the store, the keys of its secrets or the work folder"
        ),
        "secrets-under-old-key": FindingCode(_INFO, "secrets are encrypted with a key that is not the first any more"),
        "redundant": FindingCode(_INFO, "a policy says what would hold, or be served, without it"),
        "shadow": FindingCode(_INFO, "a policy with `kuma.io/effect: shadow` is looked at, and holds nowhere"),
        "engine-of-settings": FindingCode(
            _INFO,
            "a Mesh does not name its policy engine, so another setting changes who may call its ExternalServices",
        ),
        "read-by-proxies": FindingCode(
            _INFO, "a file of an ExternalService is read by the proxies, where Kuma's control plane reads its own"
        ),
        "no-outbounds": FindingCode(_INFO, "the workload of a Dataplane can call nobody through its proxy"),
        "no-dataplanes": FindingCode(_INFO, "a mesh without Dataplanes: what concerns proxies is not judged"),
    }
)


@dataclass(frozen=True, slots=True)
class FindingReason:
    """What is to be said of a place in a document."""

    code: str
    text: str
    path: str = ""
    hint: str = ""


def finding_about(resource: Resource, reason: FindingReason) -> Finding:
    """A finding about one resource, as bad as its code says."""
    severity = CATALOGUE[reason.code].severity
    return finding(resource.document, reason.code, severity, Violation(reason.path, reason.text, reason.hint))
