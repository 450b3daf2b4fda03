"""Certificates: who signs for a mesh, whom its proxies trust, and what the certificate of each proxy says."""
