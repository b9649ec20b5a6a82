"""The version of this package, which the ledger records too: asking for the installed one takes 15 ms."""

__version__ = "0.1.0"
