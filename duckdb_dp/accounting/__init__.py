"""What a budget guarantees and what was spent: accountings, conversions, events and the ledger."""
