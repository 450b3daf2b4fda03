"""From rules to bytes: what each destination and inbound is, its Envoy resources, and the snapshot of each proxy.

A module imports only those that stand later in this list: `compiler` (proxies), `proxy_class`, `translator` (the
stages), a stage for each kind of result (`outbound`, `backend`, `inbound`, `sidecar`, `capture`), then what the stages
share (`callers`, `dependencies`, `failed`, `effective`, `change_scope`, `deciding_policies`, `fragments`, `snapshot`,
`packing`), and `view`, which reads the World. The room does no I/O, and Envoy's messages are built by `generators`.
"""
