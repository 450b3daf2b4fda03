"""World to what the generators are given: destinations, backends, endpoints, inbounds."""
