"""Envoy's messages, built from plain values: everything that knows Envoy and nothing of the mesh."""
