"""Inputs that nobody would write: each is answered, soon, and raises nothing that it should not.

See record 0045.
"""
