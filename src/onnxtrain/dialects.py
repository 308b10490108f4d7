"""Code in messages for the method, the rows and the table of a call; it is written for ``fit`` and frames of pandas."""

from __future__ import annotations

import ast
import re
from typing import Any

#: A column in the code of a message.
_COLUMN = r"(X\[[^\]]+\])"

#: The code for a DataFrame of polars, by that for a frame of pandas.
_POLARS = {
    r"(type dict in ('[^']*').* entries: )X\.drop\(columns=.*\)\)": r"\1X.unnest(\2)",
    rf"\({_COLUMN} - pandas\.Timestamp\([^)]*\)\)\.dt\.days": r"\1.dt.epoch('d')",
    r"X\.assign\(\*\*\{'[^']*': ([^}]*)\}\)": r"X.with_columns(\1)",
    rf"pandas\.to_numeric\({_COLUMN}, errors='coerce'\)": r"\1.cast(float, strict=False)",
    rf"X\.drop\(columns=('[^']*')\)\.join\(pandas\.DataFrame\({_COLUMN}\.tolist\(\), index=X\.index\)"
    r"\.add_prefix\(('[^']*')\)\)": (
        r"X.drop(\1).hstack(polars.DataFrame(numpy.array(\2.to_list())).rename(lambda name: \3 + name)), or pass the "
        r"array alone: numpy.array(\2.to_list())"
    ),
    rf"pandas\.to_datetime\({_COLUMN}\)": r"\1.str.to_datetime()",
    rf"{_COLUMN}\.map\(str\)": r"\1.cast(str)",
    r"(?<=': )object(?=[,}])": "str",
    r"(?<=': )'float32'(?=[,}])": "polars.Float32",
    r"X\.astype\(numpy\.float32\)": "X.cast(polars.Float32)",
    r"\.astype\((\{|float|str)": r".cast(\1",
    r"\.str\.replace\(('[^']*'), '', regex=True\)": r".str.replace_all(\1, '')",
    r"X\.fillna\(\{('[^']*'): ([^}]*)\}\)": r"X.with_columns(X[\1].fill_null(\2))",
    r"X\.fillna\(": "X.fill_null(",
    r"X\.drop\(columns=": "X.drop(",
    r"numpy\.isfinite\(X\)": "numpy.isfinite(X.to_numpy())",
    r"X\[known\]": "X.filter(known)",
    r"frame\.iloc\[\[0\]\]": "frame[:1]",
}

#: The code that makes a frame of pandas of a table, by the library and name of its class.
_AS_PANDAS = {
    ("polars", "DataFrame"): "X.to_pandas()",
    ("polars", "LazyFrame"): "X.collect().to_pandas()",
    ("pyarrow", "RecordBatch"): "X.to_pandas()",
    ("pyarrow", "Table"): "X.to_pandas()",
}


#: What to do with rows that can be read only once, in partial_fit and in methods that take rows in memory.
_ONCE = (
    r"For rows that come only once, use partial_fit\.",
    "For rows that come only once: for X, y in batches: model.partial_fit(X, y).",
)
_BATCHES = (
    r"^(X is an? \w+)(?:, which can be read only once)?, but (?:each epoch|fit draws) .*",
    r"\1, and not an array or a frame. If it yields rows, pass list(X); if batches, numpy.concatenate(list(X)).",
)

#: What a part is, by the code for all rows.
_OF_PART = {
    "Call fit(X, y)": "(X, y)",
    "Pass numpy.asarray(y).astype(float)": "y.astype(float)",
    "Pass X[model.feature_names_in_], which has the columns in that order": "X[columns], with one list of columns for "
    "all parts; from_parquet takes it as columns=",
    "Select the columns of fit: X[model.feature_names_in_]": "X[model.feature_names_in_]; from_parquet takes "
    "columns=[*model.feature_names_in_]",
}

#: What to do with labels of a validation set that y lacks, in place of the remedies for y.
_UNKNOWN_LABELS = (
    r"The y of the first fit, .* or an ONNX model with head='new'\.",
    "Split the rows so that X has each label, train_test_split(X, y, stratify=y), or leave these out: "
    "known = numpy.isin(y_val, y), fit(X, y, X_val=X_val[known], y_val=y_val[known]).",
)

#: The call in the code that leaves out rows.
_LEAVES_OUT = r"\bfit(?=\(X(\[known\]|\.filter\(known\)))"

#: The tests of targets for values and for gaps, which have one result per row only for a single column of targets.
_KNOWN, _MISSING = (
    r"(known = (?:numpy\.isfinite|pandas\.notna))(\(y\))",
    r"(known = ~pandas\.isna)(\(y\))",
)

#: A count of one before a noun in the plural; checks of scikit-learn expect its own "X has 1 features".
_ONE = r"(?<![\w.,])1 (class|column|row|value)(s|es)\b"


#: A call of fit in the code that leaves out rows, with the rows and the targets that remain.
_FIT_OF_SOME = r"\bfit\(([\w.(]*\bX\)?(?:\[known\]|\.filter\(known\)|\[y [^\]]*\])), ([^,]*\by\b[^,]*?)\)(?=[\s.,]|$)"

#: X and y in code, which stand before an attribute, an index, an operator or a closing bracket, but not in (X, y).
_IN_CODE = r"(?<![\w.'])(?<!X, )([Xy])(?=\.[a-z]|\[| [-/<>=!]=? |[])])"

#: The remedy for one column per class, with the list of classes.
_OF_CLASSES = r", in the order of classes_, pass numpy\.array\((\[.*\])\)\[y\.argmax\(axis=1\)\]"

#: Code for an array, after its name; a list has slices of rows, too.
_OF_ARRAY = r"(?=\.(T|argmax|astype|max|mean|min|ravel|repeat|reshape)\b|\[(None|known|\.\.\.|:,))"


def for_call(message: str, method: str, X: object, y: object = None) -> str:
    """Return a message about a call with its code for this method, for lists and for the library of its table.

    Examples
    --------
    >>> for_call("Leave it out: known = numpy.isfinite(y), fit(X[known], y[known]).", "partial_fit", [[1], [2]])
    'Leave it out: known = numpy.isfinite(y), partial_fit(numpy.asarray(X)[known], y[known]).'
    """
    if method != "fit":
        pattern, remedy = _ONCE if method == "partial_fit" else _BATCHES
        message = re.sub(pattern, remedy, message)
    if method not in ("fit", "partial_fit", "score", "losses", "gradient"):  # which take rows alone
        message = message.replace("fit(X[known], y[known])", "fit(X[known])")
    message = re.sub(_ONE, r"1 \1", re.sub(_LEAVES_OUT, method, for_table(message, X)))
    if hasattr(X, "to_numpy"):
        message = re.sub(r"(?<![\w.])X(?=\.(reshape|repeat)\(|\[None\]|\[\.\.\.,|\[:, )", "X.to_numpy()", message)
    shape = getattr(y, "shape", ())
    if (isinstance(shape, tuple) and len(shape) == 2) or (
        isinstance(y, (list, tuple)) and y and isinstance(y[0], (list, tuple))
    ):
        message = re.sub(_KNOWN, r"\1\2.all(axis=1)", message)
        message = re.sub(_MISSING, r"\1\2.any(axis=1)", message)
    for name in [name for name, values in (("X", X), ("y", y)) if isinstance(values, (list, tuple))]:
        message = re.sub(rf"(?<!\w)(?<!\.){name}{_OF_ARRAY}", f"numpy.asarray({name})", message)
    if hasattr(y, "toarray") or hasattr(y, "columns"):  # sparse matrices and frames have no suitable argmax
        message = _with_columns_of(y, message)
        dense = "y.toarray()" if hasattr(y, "toarray") else "y.to_numpy()"
        message = re.sub(r"(?<![\w.])y(?=\.argmax\()", dense, message)
    return message


def _with_columns_of(y: Any, message: str) -> str:
    """Return a message about one column per class with the code for a frame whose columns have the names of classes."""
    found = re.search(_OF_CLASSES, message)
    if found is None or not hasattr(y, "columns") or {*y.columns} != {*ast.literal_eval(found[1])}:
        return message
    labels = "y.idxmax(axis=1)" if hasattr(y, "idxmax") else "numpy.array(y.columns)[y.argmax(axis=1)]"
    return message.replace(found[0], f", pass {labels}")


def for_validation(message: str) -> str:
    """Return a message about rows and targets with the code for a validation set.

    Examples
    --------
    >>> for_validation("Leave it out: known = numpy.isfinite(y), fit(X[known], y[known]).")
    'Leave it out: known = numpy.isfinite(y_val), fit(X, y, X_val=X_val[known], y_val=y_val[known]).'
    """
    message = re.sub(_FIT_OF_SOME, r"fit(X, y, X_val=\1, y_val=\2)", message)
    message = re.sub(*_UNKNOWN_LABELS, re.sub(_IN_CODE, r"\1_val", message))
    message = re.sub(r"^sample_weight\.shape", "sample_weight_val.shape", message)
    message = message.replace("Pass one weight per row of X", "Pass one weight per row of X_val")
    return message.replace("model.feature_names_in_", "X.columns")


def for_part(message: str, i: int | str) -> str:
    """Return a message about rows and targets with the code for part `i` of rows in parts, which ``read(i)`` returns.

    Examples
    --------
    >>> for_part("Pass numpy.asarray(y).astype(float).", 2)
    'Let read(2) return y.astype(float).'
    """
    for code, of_part in _OF_PART.items():
        message = message.replace(code, f"Let read({i}) return {of_part}")
    return message


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
    translated = library == "polars"
    for pattern, code in _POLARS.items() if translated else ():
        message = re.sub(pattern, code, message)
    remedy = f" This code is for a frame of pandas: X = {made}."
    rest = re.search(r"pandas\.[^D]|\.iloc" if translated else r"X[.[]|frame\.|pandas\.", message)
    if name == "LazyFrame" and not rest:
        rest, remedy = re.search(r"X[.[]", message), " This code is for a DataFrame of polars: X = X.collect()."
    return message + remedy if rest and remedy not in message else message
