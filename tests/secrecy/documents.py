"""Valid documents with a marker in every field that may have a secret: of all kinds, and of all messages of Envoy's."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any, Final

from tests.secrecy.envoy import secret_fields
from tests.secrecy.markers import Markers

Document = dict[str, Any]

MESH: Final = "default"
ALL: Final = {"kind": "Mesh"}
SIDECARS: Final = {"kind": "Mesh", "proxyTypes": ["Sidecar"]}
GATEWAY: Final = {"kind": "MeshGateway", "name": "edge-1"}
LEGACY: Final = {
    "sources": [{"match": {"kuma.io/service": "*"}}],
    "destinations": [{"match": {"kuma.io/service": "*"}}],
}
_AT_ONCE: Final = 8
_SAMPLE: Final = 12
"""One of so many messages of Envoy's is in all documents, as each makes explanations slower."""


def text_forms(secret: str) -> Iterator[str]:
    """Texts in which something other than the name of a field says that a part is secret."""
    yield f"user:{secret}@host:80/path"
    yield f"//user:{secret}@host"
    yield f"log in as user:{secret}@host, please"
    yield f"host:80/callback?code={secret}"
    yield f"Bearer\t{secret}"
    yield f"bearer:{secret}"
    yield f"Basic\t{base64.b64encode(f'user:{secret}'.encode()).decode()}"
    yield f"token={secret}"
    yield f"AWS4-HMAC-SHA256 Credential=a/b, Signature={secret}"
    yield f'request_handle:headers():add("authorization", "{secret}")'
    yield f"local password = '{secret}'"
    yield 'config = {"password": "' + secret + '"}'


def entry_forms(secret: str) -> Iterator[str]:
    """Entries of a mapping in YAML, between braces, whose secret is not the text of a value with a plain name."""
    yield from (f"note: {json.dumps(text)}" for text in text_forms(secret))
    yield f"a: b,  # old password: {secret}\n"
    yield f"a: b,\n# key: authorization\n# value: {secret}\n"
    yield f"a: b,  # http://user:{secret}@host\n"
    yield f'"pa\\x73sword": {secret}'
    yield f'"p\\u0061ssword": {secret}'
    yield f'note: "B\\u0065arer {secret}"'
    yield f"note: &a {secret}, password: *a"
    yield f"password: &a {secret}, notes: [*a]"
    yield f"x: &a {{note: {secret}}}, private_key: *a"
    yield f"password1: {secret}, secretKeyValue: {secret}, token_2: {secret}, x-psk: {secret}, envoy.token.x: {secret}"
    yield f"pa\u017f\u017fword: {secret}"
    yield f"\uff50assword: {secret}"
    yield f"name: authorization, value: {secret}, route: x"
    yield f"token: {{header: {secret}}}"
    yield f'headers: {{x-api-key: "%{secret.upper()}%"}}'


class Planter:
    """Makes the documents. Each text in them is another."""

    def __init__(self, *, every_message: bool = False) -> None:
        self.markers = Markers()
        self._messages = list(secret_fields())[:: 1 if every_message else _SAMPLE]

    def documents(self) -> Iterator[Document]:
        yield from self._meshes()
        yield from self._proxies()
        yield from self._services()
        yield from self._secrets()
        yield from self._policies()
        yield from self._legacy()
        yield from self._patches()

    def _text(self) -> str:
        return self.markers.new()

    def _base64(self) -> str:
        return base64.b64encode(self._text().encode()).decode()

    def _url(self, host: str = "collector.example:9411") -> str:
        return f"http://user:{self._text()}@{host}/path?token={self._text()}"

    def _header(self, name: str = "authorization", key: str = "name") -> dict[str, str]:
        return {key: name, "value": self._text()}

    def _headers(self) -> dict[str, Any]:
        return {"set": [self._header()], "add": [self._header("x-api-key"), self._header("x-psk")]}

    def _match(self) -> dict[str, str]:
        return {"type": "Exact", **self._header()}

    def _source(self, name: str = "inline") -> dict[str, str]:
        return {name: self._base64() if name == "inline" else self._text()}

    def _meshes(self) -> Iterator[Document]:
        yield {
            "type": "Mesh",
            "name": MESH,
            "logging": {
                "backends": [
                    {
                        "name": "log",
                        "type": "tcp",
                        "format": f"Bearer {self._text()}",
                        "conf": {"address": "log.example:9000"},
                    }
                ]
            },
            "tracing": {
                "backends": [{"name": "trace", "type": "zipkin", "conf": {"url": self._url()}}],
                "defaultBackend": "trace",
            },
        }
        for name, field in (("one", "inline"), ("two", "inlineString")):
            conf = {"cert": self._source(field), "key": self._source(field)}
            backends = [{"name": "ca", "type": "provided", "conf": conf}]
            yield {"type": "Mesh", "name": name, "mtls": {"enabledBackend": "ca", "backends": backends}}

    @staticmethod
    def _proxies() -> Iterator[Document]:
        for name, port in (("web", 10001), ("backend", 10002)):
            inbound = {"port": port, "tags": {"kuma.io/service": name, "kuma.io/protocol": "http"}}
            outbound = [{"port": 20001, "tags": {"kuma.io/service": "backend"}}] if name == "web" else []
            networking = {"address": "127.0.0.1", "inbound": [inbound], "outbound": outbound}
            yield {"type": "Dataplane", "mesh": MESH, "name": f"{name}-1", "networking": networking}
        gateway = {"tags": {"kuma.io/service": "edge"}, "type": "BUILTIN"}
        of_gateway = {"address": "127.0.0.1", "gateway": gateway}
        yield {"type": "Dataplane", "mesh": MESH, "name": "edge-1", "networking": of_gateway}

    def _services(self) -> Iterator[Document]:
        for number, field in enumerate(("inline", "inlineString"), 1):
            tls = {name: self._source(field) for name in ("caCert", "clientCert", "clientKey")}
            spec = {
                "match": {"type": "HostnameGenerator", "port": 443, "protocol": "http"},
                "endpoints": [{"address": "api.example.com", "port": 443}],
                "tls": {"enabled": True, "verification": tls},
            }
            yield {"type": "MeshExternalService", "mesh": MESH, "name": f"outside-{number}", "spec": spec}
            networking = {"address": "api.example.com:443", "tls": {"enabled": True, **dict(tls)}}
            tags = {"kuma.io/service": f"outside-{number}", "kuma.io/protocol": "http"}
            old = {"type": "ExternalService", "mesh": MESH, "name": f"old-{number}", "networking": networking}
            yield {**old, "tags": tags}
            certificates = [self._source(field)]
            listener = {
                "port": 8443 + number,
                "protocol": "HTTPS",
                "hostname": "shop.example",
                "tls": {"mode": "TERMINATE", "certificates": certificates},
            }
            selectors = [{"match": {"kuma.io/service": "edge"}}]
            gateway = {"type": "MeshGateway", "mesh": MESH, "name": f"edge-{number}", "selectors": selectors}
            yield {**gateway, "conf": {"listeners": [listener]}}
        config = {"match": {"type": "HostnameGenerator", "port": 443, "protocol": "http"}}
        extension = {"type": "aws", "config": {"password": self._text()}}
        yield {
            "type": "MeshExternalService",
            "mesh": MESH,
            "name": "extended",
            "spec": {**config, "extension": extension},
        }
        spec = {"template": "{{ .DisplayName }}.mesh", "selector": {"meshService": {"matchLabels": {"a": "b"}}}}
        yield {"type": "HostnameGenerator", "name": "names", "spec": {**spec, "extension": extension}}

    def _secrets(self) -> Iterator[Document]:
        yield {"type": "Secret", "mesh": MESH, "name": "key", "data": self._base64()}
        yield {"type": "GlobalSecret", "name": "key", "data": self._base64()}
        ca = {
            name: {"type": "InsecureInline", "insecureInline": {"value": self._text()}}
            for name in ("certificate", "privateKey")
        }
        provider = {"type": "Bundled", "bundled": {"ca": ca}}
        yield {"type": "MeshIdentity", "mesh": MESH, "name": "identity", "spec": {"provider": provider}}
        extension = {"type": "Extension", "extension": {"name": "x", "config": {"token": self._text()}}}
        yield {"type": "MeshIdentity", "mesh": MESH, "name": "extended", "spec": {"provider": extension}}

    def _policies(self) -> Iterator[Document]:
        yield self._policy("MeshTrace", default={"backends": [{"type": "Zipkin", "zipkin": {"url": self._url()}}]})
        tags = [
            {"name": "api-token", "literal": self._text()},
            {"name": "who", "header": {"name": "authorization", "default": self._text()}},
        ]
        datadog = {"type": "Datadog", "datadog": {"url": "http://agent.example:8126"}}
        yield self._policy("MeshTrace", "2", default={"backends": [datadog], "tags": tags})
        otel = {"type": "OpenTelemetry", "openTelemetry": {"endpoint": f"user:{self._text()}@otel.example:4317"}}
        yield self._policy("MeshTrace", "3", default={"backends": [otel]})
        for number, level in enumerate(("to", "from", "rules"), 1):
            name = str(number)
            item = {} if level == "rules" else {"targetRef": ALL}
            yield self._policy("MeshAccessLog", name, **{level: [{**item, "default": self._access_log()}]})
            rate = {"num": 5, "interval": "10s"}
            limit = {"requestRate": rate, "onRateLimit": {"headers": self._headers()}}
            of_level = {level: [{**item, "default": {"local": {"http": limit}}}]}
            yield self._policy("MeshRateLimit", name, targetRef=GATEWAY if level == "to" else SIDECARS, **of_level)
        check = {"path": f"/health?token={self._text()}", "requestHeadersToAdd": self._headers()}
        yield self._to("MeshHealthCheck", {"http": check})
        matches = {name: [self._match()] for name in ("retriableRequestHeaders", "retriableResponseHeaders")}
        yield self._to("MeshRetry", {"http": {"numRetries": 2, **matches}})
        application = {"name": "app", "port": 80, "path": f"/metrics?token={self._text()}"}
        backend = {"type": "OpenTelemetry", "openTelemetry": {"endpoint": f"user:{self._text()}@otel.example:4317"}}
        yield self._policy("MeshMetric", default={"applications": [application], "backends": [backend]})
        yield self._http_route()

    def _access_log(self) -> dict[str, Any]:
        logs = {
            "json": {"type": "Json", "json": [self._header(key="key")]},
            "plain": {"type": "Plain", "plain": f"Bearer {self._text()}"},
        }
        backends: list[Any] = [
            *({"type": "File", "file": {"path": "/tmp/log", "format": form}} for form in logs.values()),  # noqa: S108
            *(
                {"type": "Tcp", "tcp": {"address": "log.example:9000", "format": form}}
                for form in (
                    {"type": "Json", "json": [self._header(key="key")]},
                    {"type": "Plain", "plain": f"Bearer {self._text()}"},
                )
            ),
            {
                "type": "OpenTelemetry",
                "openTelemetry": {
                    "endpoint": "otel.example:4317",
                    "attributes": [self._header("secret", "key")],
                    "body": {"kvlistValue": {"password": self._text()}},
                },
            },
        ]
        return {"backends": backends}

    def _http_route(self) -> Document:
        filters = [
            {"type": "RequestHeaderModifier", "requestHeaderModifier": self._headers()},
            {"type": "ResponseHeaderModifier", "responseHeaderModifier": self._headers()},
        ]
        rewrites = [{"type": "ReplaceFullPath", "replaceFullPath": f"/new?token={self._text()}"}]
        prefix = {"type": "ReplacePrefixMatch", "replacePrefixMatch": f"/new?token={self._text()}"}
        parameter = {"type": "Exact", **self._header("token")}
        match = {"path": {"type": "PathPrefix", "value": "/"}, "headers": [self._match()], "queryParams": [parameter]}
        rules: list[Any] = [{"matches": [match], "default": {"filters": filters}}]
        for rewrite in (*rewrites, prefix):
            for type_, field in (("URLRewrite", "urlRewrite"), ("RequestRedirect", "requestRedirect")):
                path = {"path": {"type": "PathPrefix", "value": f"/{rewrite['type'].lower()}-{type_.lower()}"}}
                rules.append({"matches": [path], "default": {"filters": [{"type": type_, field: {"path": rewrite}}]}})
        item = {"targetRef": {"kind": "MeshService", "name": "backend"}, "rules": rules}
        return self._policy("MeshHTTPRoute", to=[item])

    def _legacy(self) -> Iterator[Document]:
        header = {"header": self._header(key="key")}
        http = {"path": f"/health?token={self._text()}", "requestHeadersToAdd": [header]}
        base = {"interval": "10s", "timeout": "2s", "unhealthyThreshold": 3, "healthyThreshold": 1}
        yield self._old("HealthCheck", {**base, "http": http})
        limit = {"requests": 5, "interval": "10s", "onRateLimit": {"headers": [self._header(key="key")]}}
        yield self._old("RateLimit", {"http": limit})
        changes = {name: {"add": [self._header()]} for name in ("requestHeaders", "responseHeaders")}
        matched = {kind: {kind: self._text()} for kind in ("exact", "prefix", "regex")}
        names = dict(zip(("authorization", "x-api-key", "cookie"), matched.values(), strict=True))
        row = {
            "match": {"path": {"prefix": "/"}, "headers": names},
            "modify": {**changes, "path": {"rewritePrefix": f"/new?token={self._text()}"}},
            "destination": {"kuma.io/service": "backend"},
        }
        yield self._old("TrafficRoute", {"destination": {"kuma.io/service": "*"}, "http": [row]})
        yield self._gateway_route()

    def _gateway_route(self) -> Document:
        match = {
            "path": {"match": "PREFIX", "value": "/"},
            "headers": [{"match": "EXACT", **self._header()}],
            "queryParameters": [{"match": "EXACT", **self._header("token")}],
        }
        filters = [{name: self._headers()} for name in ("requestHeader", "responseHeader")]
        backends = [{"weight": 1, "destination": {"kuma.io/service": "backend"}}]
        rules: list[Any] = [{"matches": [match], "filters": filters, "backends": backends}]
        for field in ("replaceFull", "replacePrefixMatch"):
            path = {"path": {"match": "PREFIX", "value": f"/{field.lower()}"}}
            value = {field: f"/new?token={self._text()}"}
            redirect = {"redirect": {"hostname": "a.example", "statusCode": 302, "path": value}}
            rules += [
                {"matches": [path], "filters": [{"rewrite": value}], "backends": backends},
                {"matches": [{"path": {"match": "PREFIX", "value": f"/{field.lower()}-2"}}], "filters": [redirect]},
            ]
        selectors = [{"match": {"kuma.io/service": "edge"}}]
        route = {"type": "MeshGatewayRoute", "mesh": MESH, "name": "one", "selectors": selectors}
        return {**route, "conf": {"http": {"rules": rules}}}

    def _patches(self) -> Iterator[Document]:
        """Every secret field of Envoy's messages, as a filter and as operations of a JSON Patch."""
        texts = [text for field in self._messages for text in field.filter_texts(self.markers)]
        changes: list[Any] = [{"httpFilter": {"operation": "AddFirst", "value": text}} for text in texts]
        match = {"name": "envoy.filters.http.router"}
        for field in self._messages:
            patches = field.json_patches(self.markers)
            changes.append({"httpFilter": {"operation": "Patch", "match": match, "jsonPatches": patches}})
        key: Document = {"privateKey": {"inlineString": self._text()}}
        context = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"
        tls: Document = {"@type": context, "commonTlsContext": {"tlsCertificates": [key]}}
        socket: Document = {"name": "tls", "typedConfig": tls}
        resources: dict[str, Document] = {
            "cluster": {"transportSocket": socket},
            "listener": {"filterChains": [{"transportSocket": socket}]},
            "networkFilter": {"name": "planted", "typedConfig": tls},
            "virtualHost": {"requestHeadersToAdd": [{"header": {"key": "authorization", "value": self._text()}}]},
        }
        for name, value in resources.items():
            of_filter: Document = {"match": {"name": "envoy.filters.network.http_connection_manager"}}
            where = of_filter if name == "networkFilter" else {}
            changes.append({name: {"operation": "Patch", **where, "value": json.dumps(value)}})
            path = "/typedConfig/privateKey/inlineString" if name == "networkFilter" else "/a/privateKey/inlineString"
            patch = {"op": "add", "path": path, "value": self._text()}
            changes.append({name: {"operation": "Patch", **where, "jsonPatches": [patch]}})
        entries = [f"metadata: {{filter_metadata: {{x: {{{entry}}}}}}}" for entry in entry_forms(self._text())]
        changes += [{"cluster": {"operation": "Patch", "value": entry}} for entry in entries]
        for begin in range(0, len(changes), _AT_ONCE):
            conf: Document = {"appendModifications": changes[begin : begin + _AT_ONCE]}
            yield self._policy("MeshProxyPatch", f"p{begin // _AT_ONCE}", default=conf)
        cluster: Document = {
            "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            "name": "x",
            "transportSocket": socket,
        }
        raw = [{"name": "raw", "version": "v1", "resource": json.dumps(cluster)}]
        modifications: list[Any] = [
            {name: {"operation": "patch", **({"match": match} if "Filter" in name else {}), "value": json.dumps(value)}}
            for name, value in (*resources.items(), ("httpFilter", {"name": "x", "typedConfig": tls}))
        ]
        conf = {"imports": ["default-proxy"], "resources": raw, "modifications": modifications}
        selectors = [{"match": {"kuma.io/service": "*"}}]
        yield {"type": "ProxyTemplate", "mesh": MESH, "name": "old", "selectors": selectors, "conf": conf}

    @staticmethod
    def _policy(kind: str, name: str = "1", **spec: Any) -> Document:
        return {"type": kind, "mesh": MESH, "name": f"planted-{name}", "spec": {"targetRef": ALL, **spec}}

    def _to(self, kind: str, conf: dict[str, Any]) -> Document:
        return self._policy(kind, to=[{"targetRef": ALL, "default": conf}])

    @staticmethod
    def _old(kind: str, conf: dict[str, Any]) -> Document:
        return {"type": kind, "mesh": MESH, "name": "planted", **LEGACY, "conf": conf}
