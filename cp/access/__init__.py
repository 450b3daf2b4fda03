"""Who may come in: the tokens of proxies and people, and the keys that sign and verify them."""
