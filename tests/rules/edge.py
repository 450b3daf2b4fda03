"""A mesh with a builtin gateway, as text: what is told of it is held against it in several tests."""

from __future__ import annotations

from typing import Final

EDGE: Final = """
type: Mesh
name: default
skipCreatingInitialPolicies: ["*"]
---
type: Dataplane
mesh: default
name: edge
networking: {address: 10.0.0.1, gateway: {type: BUILTIN, tags: {kuma.io/service: edge}}}
---
type: Dataplane
mesh: default
name: web-1
networking:
  address: 10.0.0.2
  inbound: [{port: 8080, servicePort: 9090, tags: {kuma.io/service: web, kuma.io/protocol: http}}]
  outbound: []
---
type: MeshService
mesh: default
name: web
spec:
  selector: {dataplaneTags: {kuma.io/service: web}}
  ports: [{port: 80, targetPort: 8080, appProtocol: http}]
---
type: MeshGateway
mesh: default
name: edge
selectors: [{match: {kuma.io/service: edge}}]
conf:
  listeners:
    - {port: 80, protocol: HTTP, hostname: "*.example", tags: {at: http}}
    - {port: 80, protocol: HTTP, hostname: admin.example, tags: {at: admin}}
    - {port: 9000, protocol: TCP, tags: {at: tcp}}
---
type: MeshHTTPRoute
mesh: default
name: shop
spec:
  targetRef: {kind: MeshGateway, name: edge, tags: {at: http}}
  to:
    - targetRef: {kind: Mesh}
      hostnames: [shop.example]
      rules:
        - matches: [{path: {type: PathPrefix, value: /cart}}]
          default: {backendRefs: [{kind: MeshService, name: web, port: 80}]}
---
type: MeshTCPRoute
mesh: default
name: tcp
spec:
  targetRef: {kind: MeshGateway, name: edge, tags: {at: tcp}}
  to:
    - targetRef: {kind: Mesh}
      rules: [{default: {backendRefs: [{kind: MeshService, name: web, port: 80}]}}]
"""
"""It listens for `*.example` and `admin.example` at one port, and for TCP at another; it has a route on each port."""
