"""What Prometheus and Grafana are given to watch control planes and proxies: dashboards, alerts, a configuration.

See record 0091.
"""
