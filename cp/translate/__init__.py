"""From rules to bytes: what each destination and inbound is, its Envoy resources, and the snapshot of each proxy."""
