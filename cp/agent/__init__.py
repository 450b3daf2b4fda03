"""The agent of a proxy: it joins the mesh, supervises the Envoy, sends its logs and metrics, and drains it."""
