"""Streams of configuration to proxies, over Envoy's protocol: the server, and the sessions that decide what is sent."""
