"""The one exception that users of this package see."""


class DPError(ValueError):
    """What was asked, what was wrong, what would work: one line, and never a private value."""
