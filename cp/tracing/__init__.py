"""Traces: what became of a change, in spans, and how they are sent to a collector over OTLP."""
