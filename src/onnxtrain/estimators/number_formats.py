"""Number formats of string columns: units, thousands separators and decimal commas, and the code that parses them."""

from __future__ import annotations

import re
from collections.abc import Iterable

#: The characters before a number with a unit, and after it.
_BEFORE, _UNIT = r"[-+]?([$£€¥]|(CHF|EUR|GBP|USD) )?", r"( ?[%$£€¥°]| ?[^\W\d_]{1,5})?"

_PLAIN = re.compile(r"[-+]?\d*\.?\d+")
_OF_THOUSANDS = re.compile(rf"{_BEFORE}(?!0,)(\d{{1,3}}(,\d{{3}})+(\.\d+)?|\d+(\.\d+)?){_UNIT}")
_DECIMAL = re.compile(rf"{_BEFORE}(\d{{1,3}}(\.\d{{3}})*,\d+|\d+(,\d+)?){_UNIT}")


def code_of_numbers(values: Iterable[str], name: str, ending: str = "") -> str:
    """Return a remedy with the code that parses strings as floats; empty if they have none of these number formats.

    A comma before three digits may separate thousands or decimals; then both readings are given.

    Examples
    --------
    >>> code_of_numbers(["0,125", "12,5"], "X['size']")
    "Convert them: X['size'].str.replace('[^0-9,-]', '', regex=True).str.replace(',', '.').astype(float)."
    >>> code_of_numbers(["1,250"], "X['size']").partition(" If")[0]
    'The comma may separate thousands or decimals.'
    """
    found = list(values)
    if not found or all(map(_PLAIN.fullmatch, found)):
        return ""
    of_thousands = f"{name}.str.replace('[^0-9.-]', '', regex=True).astype(float){ending}"
    decimal = f"{name}.str.replace('[^0-9,-]', '', regex=True).str.replace(',', '.').astype(float){ending}"
    may_be_thousands, may_be_decimal = all(map(_OF_THOUSANDS.fullmatch, found)), all(map(_DECIMAL.fullmatch, found))
    if may_be_thousands and may_be_decimal and any("," in value for value in found):
        return (
            f"The comma may separate thousands or decimals. If thousands, pass {of_thousands}; if decimals, {decimal}. "
            "pandas.read_csv has thousands=',' and decimal=','."
        )
    if may_be_thousands or may_be_decimal:
        return f"Convert them: {of_thousands if may_be_thousands else decimal}."
    return ""
