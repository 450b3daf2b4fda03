"""Preflight: a real Envoy is shown what a change comes to, before any proxy is. See record 0087."""
