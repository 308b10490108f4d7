"""Every public name and method says what its parameters are, what it returns, and has an example that is run."""

import enum
import inspect
import sys
from pathlib import Path

import pytest

validation = pytest.importorskip("numpydoc.validate", reason="needs numpydoc, of the extra test")

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "doc"))
from completeness import public_names  # noqa: E402

#: No example; a parameter without a line, or without a description; a return value without one.
CODES = ("EX01", "PR01", "PR07", "RT03")


def own(name):
    """Whether a docstring is written here: methods of scikit-learn have theirs, overrides inherit that of the base."""
    parts = name.split(".")
    value = sys.modules[".".join(parts[:2])] if parts[1] in ("errors", "optim", "testing") else sys.modules[parts[0]]
    for part in parts[2 if parts[1] in ("errors", "optim", "testing") else 1 :]:
        if inspect.isclass(value) and part not in dir(value):
            return False  # an attribute, which the docstring of its class describes
        value = inspect.getattr_static(value, part) if inspect.isclass(value) else getattr(value, part)
    value = getattr(value, "method", getattr(value, "fget", getattr(value, "__func__", value)))
    return (getattr(value, "__module__", None) or "").startswith("onnxtrain") and bool(value.__doc__)


def has_own_constructor(name):
    """Whether the parameters of a class are ours: those of an Enum and of a Protocol are Python's."""
    module, _, last = name.rpartition(".")
    found = getattr(sys.modules.get(module), last, None)
    return not (isinstance(found, enum.EnumMeta) or getattr(found, "_is_protocol", False))


@pytest.mark.parametrize("name", sorted({name for name in public_names() if own(name)}))
def test_a_public_docstring_is_complete(name):
    found = validation.validate(name)["errors"]
    codes = CODES if has_own_constructor(name) else set(CODES) - {"PR01"}
    assert not [f"{code}: {said}" for code, said in found if code in codes]
