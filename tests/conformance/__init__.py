"""Answers the conformance cases, one line of JSON each: `python -m tests.conformance`."""
