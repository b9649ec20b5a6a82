"""How decimals are written."""


def decimal_text(units: int, scale: int) -> str:
    """A number of last digits as a decimal with as many places: -5 with a scale of 2 is '-0.05'."""
    text = f"{abs(units):0{scale + 1}}"
    whole, places = text[: len(text) - scale], text[len(text) - scale :]
    return ("-" if units < 0 else "") + whole + ("." + places if places else "")
