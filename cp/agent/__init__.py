"""What runs beside an Envoy: it joins the mesh, supervises the Envoy, sends its logs and metrics, and drains it."""
