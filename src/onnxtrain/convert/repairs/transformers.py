"""Converters of transformers, and of categories, that replace or complete those of skl2onnx."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto
from sklearn.decomposition import KernelPCA
from sklearn.naive_bayes import CategoricalNB
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder

from onnxtrain.convert.repairs.converters import Container, WithAttributes
from onnxtrain.convert.repairs.table import Converter, repair, replaced

if TYPE_CHECKING:
    from skl2onnx.common._container import ModelComponentContainer
    from skl2onnx.common._topology import Operator, Scope


def _columns_of_encoder(operator: Operator) -> None:
    """Set the type of the output, without a column for each infrequent category, which skl2onnx counts."""
    from skl2onnx.common.data_types import FloatTensorType, Int64TensorType

    model = operator.raw_operator
    kind = Int64TensorType if np.issubdtype(model.dtype, np.signedinteger) else FloatTensorType
    operator.outputs[0].type = kind([operator.inputs[0].get_first_dimension(), len(model.get_feature_names_out())])


@repair(OneHotEncoder, shapes=_columns_of_encoder)
def categories_of_new_rows(
    convert: Converter, scope: Scope, operator: Operator, container: ModelComponentContainer
) -> None:
    """Encode unknown categories as scikit-learn does: as infrequent, as zeros, or with an error."""
    container = _OfKnownCategories(container, scope, operator)
    convert(scope, operator, container)


class _OfKnownCategories(Container):
    """A container that completes the nodes of OneHotEncoder.

    * skl2onnx casts floats to integers, so that 2.5 would be the category 2, and NaN any. Here they become an integer
      that is no category.
    * An unknown category has zeros or, in a column with infrequent ones, is one of them: every row that has no frequent
      category is. skl2onnx adds the rare categories up, and raises an error for unknown ones.
    """

    def __init__(self, container: ModelComponentContainer, scope: Scope, operator: Operator):
        super().__init__(container)
        self._scope, self._takes_unknown = scope, operator.raw_operator.handle_unknown != "error"
        self._joins_infrequent = self._takes_unknown and operator.raw_operator.handle_unknown != "ignore"
        self._floats = {x.full_name for x in operator.inputs if type(x.type).__name__.startswith(("Float", "Double"))}
        self._cast: dict[str, str] = {}
        self._frequent = ""

    def add_node(self, op_type: str, inputs: Any, outputs: Any, *args: Any, **attributes: Any) -> None:
        """Add a node, or the nodes that replace it."""
        first = inputs if isinstance(inputs, str) else inputs[0]
        if op_type == "Gather" and first in self._floats:
            self._floats.add(outputs)
        if op_type == "Cast" and first in self._floats:
            self._cast[outputs if isinstance(outputs, str) else outputs[0]] = first
            return
        if op_type == "OneHotEncoder":
            attributes["zeros"] = int(self._takes_unknown)
            if first in self._cast:
                self._add_cast(first, np.asarray(attributes["cats_int64s"]))
        if op_type == "Split":
            self._frequent = outputs[0]
        if op_type == "ReduceSum" and self._joins_infrequent:
            known, one = self._scope.get_unique_variable_name("known"), self._name_of(1.0)
            self._container.add_node("ReduceSum", [self._frequent, inputs[1]], known, *args, **attributes)
            self._container.add_node("Sub", [one, known], outputs, name=self._scope.get_unique_operator_name("Sub"))
            return
        self._container.add_node(op_type, inputs, outputs, *args, **attributes)

    def _add_cast(self, output: str, categories: np.ndarray) -> None:
        """Cast a column to int64, with an unknown category for values that are not integers."""
        x = self._cast[output]
        other = np.setdiff1d(np.arange(len(categories) + 1), categories)[0]
        whole, equal, known = (self._scope.get_unique_variable_name(name) for name in ("whole", "equal", "known"))
        for op_type, operands, result in (
            ("Floor", [x], whole),
            ("Equal", [x, whole], equal),
            ("Where", [equal, x, self._name_of(float(other))], known),
        ):
            self._container.add_node(op_type, operands, [result], name=self._scope.get_unique_operator_name(op_type))
        name = self._scope.get_unique_operator_name("Cast")
        self._container.add_node("Cast", [known], [output], name=name, to=TensorProto.INT64)

    def _name_of(self, value: float) -> str:
        """Add a scalar and return its name."""
        name = self._scope.get_unique_variable_name("scalar")
        self._container.add_initializer(name, TensorProto.FLOAT, [], [value])
        return name


@repair(KernelPCA)
def cosine_of_zeros(convert: Converter, scope: Scope, operator: Operator, container: ModelComponentContainer) -> None:
    """Let the cosine of a row of zeros be 0, as a text without known words has; skl2onnx divides by its length."""
    if operator.raw_operator.kernel == "cosine":
        container = _AboveZero(container, scope)
    convert(scope, operator, container)


class _InScope(Container):
    """A container that knows the scope, which names new nodes and values."""

    def __init__(self, container: ModelComponentContainer, scope: Scope):
        super().__init__(container)
        self._scope = scope


class _AboveZero(_InScope):
    """A container whose square roots are greater than 0."""

    def add_node(self, op_type: str, inputs: Any, outputs: Any, *args: Any, **attributes: Any) -> None:
        """Add a node."""
        if op_type != "Sqrt":
            self._container.add_node(op_type, inputs, outputs, *args, **attributes)
            return
        root, least = (self._scope.get_unique_variable_name(name) for name in ("root", "least"))
        self._container.add_initializer(least, TensorProto.FLOAT, [], [1e-30])
        self._container.add_node(op_type, inputs, [root], *args, **attributes)
        self._container.add_node("Max", [root, least], outputs, name=self._scope.get_unique_operator_name("Max"))


@repair(CategoricalNB)
def error_of_negative_codes(
    convert: Converter, scope: Scope, operator: Operator, container: ModelComponentContainer
) -> None:
    """Let a negative code raise an error, as in scikit-learn; ONNX would count it from the last category."""
    convert(scope, operator, _RefusesNegative(container, scope))


class _RefusesNegative(_InScope):
    """A container in which negative codes of columns become larger than any category."""

    def __init__(self, container: ModelComponentContainer, scope: Scope):
        super().__init__(container, scope)
        self._columns: set[str] = set()

    def add_node(self, op_type: str, inputs: Any, outputs: Any, *args: Any, **attributes: Any) -> None:
        """Add a node; a cast of a column to integers with the nodes behind it."""
        first, output = (each if isinstance(each, str) else each[0] for each in (inputs, outputs))
        if op_type == "ArrayFeatureExtractor":
            self._columns.add(output)
        if op_type != "Cast" or first not in self._columns or attributes.get("to") != TensorProto.INT64:
            self._container.add_node(op_type, inputs, outputs, *args, **attributes)
            return
        code, zero, none, below = map(self._scope.get_unique_variable_name, ("code", "zero", "none", "below"))
        self._container.add_initializer(zero, TensorProto.INT64, [], [0])
        self._container.add_initializer(none, TensorProto.INT64, [], [np.iinfo(np.int32).max])
        self._container.add_node("Cast", inputs, [code], *args, **attributes)
        self._container.add_node("Less", [code, zero], [below], name=self._scope.get_unique_operator_name("Less"))
        name = self._scope.get_unique_operator_name("Where")
        self._container.add_node("Where", [below, none, code], [output], name=name)


@repair(OrdinalEncoder)
def error_of_unknown(convert: Converter, scope: Scope, operator: Operator, container: ModelComponentContainer) -> None:
    """Let an unknown category raise an error, as in scikit-learn, if it does; skl2onnx writes the code -1.

    skl2onnx takes the codes of infrequent categories by the number of the input, not of the column, and gives missing
    values a code of their own where scikit-learn keeps NaN. A converter of float codes, among which NaN may be, is
    chosen by the code of unknown categories.
    """
    encoder, container = copy.copy(operator.raw_operator), _FindsNaN(container, scope)
    if encoder.handle_unknown == "error":
        container = _RaisesForUnknown(container, scope)
    encoder.handle_unknown = "use_encoded_value"
    encoder.unknown_value = np.nan if encoder.unknown_value is None else float(encoder.unknown_value)
    with replaced(operator, encoder):
        convert(scope, operator, WithAttributes(container, _with_codes(encoder)))


def _with_codes(encoder: OrdinalEncoder) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return a function that gives the LabelEncoder nodes, one per column, the codes of their categories."""
    infrequent = getattr(encoder, "_infrequent_enabled", False)
    mappings = encoder._default_to_infrequent_mappings if infrequent else [None] * len(encoder.categories_)
    every = zip(mappings, encoder.categories_, strict=True)
    columns = (found for found in every if len(found[1]))  # skl2onnx writes no node for others

    def change(given: dict[str, Any]) -> dict[str, Any]:
        if "values_floats" not in given:
            return given
        mapping, categories = next(columns)
        codes = np.arange(len(categories), dtype=np.float32)
        if mapping is not None:
            codes[: len(mapping)] = mapping
        if isinstance(categories[-1], (float, np.floating)) and np.isnan(categories[-1]):
            codes[-1] = encoder.encoded_missing_value
        return {**given, "values_floats": codes}

    return change


class _RaisesForUnknown(_InScope):
    """A container that looks codes up in a table. An unknown category has a position behind its end."""

    def add_node(self, op_type: str, inputs: Any, outputs: Any, *args: Any, **attributes: Any) -> None:
        """Add a node; a LabelEncoder gives positions, which a Gather replaces by the codes."""
        if op_type != "LabelEncoder":
            self._container.add_node(op_type, inputs, outputs, *args, **attributes)
            return
        codes = attributes.pop("values_floats")
        del attributes["default_float"]
        table, position = (self._scope.get_unique_variable_name(name) for name in ("codes", "position"))
        attributes.update(values_int64s=np.arange(len(codes)), default_int64=len(codes))
        self._container.add_initializer(table, TensorProto.FLOAT, [len(codes)], codes)
        self._container.add_node(op_type, inputs, position, *args, **attributes)
        name = self._scope.get_unique_operator_name("UnknownCategory")  # an error of onnxruntime has this name
        self._container.add_node("Gather", [table, position], outputs, name=name, op_version=13)


class _FindsNaN(_InScope):
    """A container whose LabelEncoder nodes find NaN among keys that are floats: for onnxruntime, it equals none."""

    def add_node(self, op_type: str, inputs: Any, outputs: Any, *args: Any, **attributes: Any) -> None:
        """Add a node, and those that write the code of NaN."""
        of_nan = np.isnan(np.asarray(attributes.get("keys_floats", ())))
        if not of_nan.any():
            self._container.add_node(op_type, inputs, outputs, *args, **attributes)
            return
        code, known, missing = map(self._scope.get_unique_variable_name, ("code", "known", "missing"))
        kinds = {"values_floats": TensorProto.FLOAT, "values_int64s": TensorProto.INT64}
        for values in kinds.keys() & attributes.keys():
            self._container.add_initializer(code, kinds[values], [], attributes[values][of_nan])
        self._container.add_node(op_type, inputs, known, *args, **attributes)
        self._container.add_node("IsNaN", inputs, missing, name=self._scope.get_unique_operator_name("IsNaN"))
        name = self._scope.get_unique_operator_name("Where")
        self._container.add_node("Where", [missing, code, known], outputs, name=name)
