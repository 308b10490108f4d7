"""Code in messages for tables of polars and pyarrow; the messages are written for frames of pandas."""

from __future__ import annotations

import re

#: A column in the code of a message.
_COLUMN = r"(X\[[^\]]+\])"

#: The code for a DataFrame of polars, by that for a frame of pandas.
_POLARS = {
    rf"\({_COLUMN} - pandas\.Timestamp\([^)]*\)\)\.dt\.days": r"\1.dt.epoch('d')",
    rf"pandas\.to_numeric\({_COLUMN}, errors='coerce'\)": r"\1.cast(float, strict=False)",
    rf"X\.drop\(columns=('[^']*')\)\.join\(pandas\.DataFrame\({_COLUMN}\.tolist\(\), index=X\.index\)"
    r"\.add_prefix\(('[^']*')\)\)": (
        r"X.drop(\1).hstack(polars.DataFrame(numpy.array(\2.to_list())).rename(lambda name: \3 + name)), or pass the "
        r"array alone: numpy.array(\2.to_list())"
    ),
    rf"pandas\.to_datetime\({_COLUMN}\)": r"\1.str.to_datetime()",
    r"(?<=': )object(?=[,}])": "str",
    r"\.astype\((\{|float|str)": r".cast(\1",
    r"\.str\.replace\(('[^']*'), '', regex=True\)": r".str.replace_all(\1, '')",
    r"X\.fillna\(\{('[^']*'): ([^}]*)\}\)": r"X.with_columns(X[\1].fill_null(\2))",
    r"X\.fillna\(": "X.fill_null(",
    r"X\.drop\(columns=": "X.drop(",
    r"frame\.iloc\[\[0\]\]": "frame[:1]",
}

#: The code that makes a frame of pandas of a table, by the library and name of its class.
_AS_PANDAS = {
    ("polars", "DataFrame"): "X.to_pandas()",
    ("polars", "LazyFrame"): "X.collect().to_pandas()",
    ("pyarrow", "RecordBatch"): "X.to_pandas()",
    ("pyarrow", "Table"): "X.to_pandas()",
}


def for_table(message: str, X: object) -> str:
    """Return a message about rows with code for the library of their table.

    Examples
    --------
    >>> import polars
    >>> for_table("Use X.fillna({'a': 0.0}).", polars.DataFrame({"a": [1.0, None]}))
    "Use X.with_columns(X['a'].fill_null(0.0))."
    """
    library, name = type(X).__module__.partition(".")[0], type(X).__name__
    made = _AS_PANDAS.get((library, name))
    if made is None:
        return message
    translated = (library, name) == ("polars", "DataFrame")
    for pattern, code in _POLARS.items() if translated else ():
        message = re.sub(pattern, code, message)
    remedy = f" This code is for a frame of pandas: X = {made}."
    rest = re.search(r"pandas\.[^D]|\.iloc" if translated else r"X[.[]|frame\.|pandas\.", message)
    return message + remedy if rest and remedy not in message else message
