"""The commands of `koguma`, and how they print."""
