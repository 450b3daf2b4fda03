"""The running control plane: it follows the store, publishes snapshots and observes how proxies answer."""
