"""Answers for operators, read from what is served: explain, inspect, lint, simulate."""
