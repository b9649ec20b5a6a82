"""The gateway: answers over the network for those who hold no connection to the table. Design: `docs/privacy.md`."""
