"""The HTTP API: resources, inspection, bootstrap and delivery, in Kuma's form."""
