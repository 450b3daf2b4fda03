"""Documents that several tests write."""

from typing import Any


def timeout(name: str = "slow", mesh: str = "default", request_timeout: str = "10s") -> dict[str, Any]:
    conf = {"http": {"requestTimeout": request_timeout}}
    item = {"targetRef": {"kind": "Mesh"}, "default": conf}
    return {
        "type": "MeshTimeout",
        "mesh": mesh,
        "name": name,
        "spec": {"targetRef": {"kind": "Mesh"}, "to": [item]},
    }


def dataplane(name: str = "web-1", mesh: str = "default", service: str = "web", **networking: Any) -> dict[str, Any]:
    inbound = {"port": 8080, "servicePort": 80, "tags": {"kuma.io/service": service, "kuma.io/protocol": "http"}}
    return {
        "type": "Dataplane",
        "mesh": mesh,
        "name": name,
        "networking": {"address": "127.0.0.1", "inbound": [inbound], **networking},
    }


TIMEOUT_YAML = """\
# how long we wait
type: MeshTimeout
mesh: default
name: slow
spec:
  targetRef:
    kind: Mesh
  to:
    - targetRef:
        kind: Mesh
      default:
        http:
          requestTimeout: 10s
"""
