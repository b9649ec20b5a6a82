"""What was promised and what was spent: conversions, events and the ledger."""
