"""The demo: a mesh of two services on this machine, with a real Envoy beside each of their four instances."""
