"""Requests at builtin gateways: what the documents say of them, what is simulated, and what a real Envoy does.

`oracle` says which route takes a request, from the documents alone: it shares no code with the product. `draws` makes
random gateways and requests, `envoy` is one Envoy that is many gateways at once (record 0070).

`holding` says which timeouts and retries hold, from the documents alone as well, and `served` reads them from
what a gateway is served. `policy_draws` makes gateways where policies meet; `listeners` has what both oracles ask for.
"""
