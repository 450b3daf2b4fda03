"""What a change costs a control plane that serves many proxies: `python -m bench serving`."""
