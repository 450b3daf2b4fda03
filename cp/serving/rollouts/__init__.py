"""Rollouts: a change goes to some proxies first, is watched, and goes on or back by itself. See record 0088."""
