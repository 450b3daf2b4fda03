"""The words that all rooms share: documents, names, references, durations, violations."""
