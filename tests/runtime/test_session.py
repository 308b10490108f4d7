"""Sessions: faults of onnxruntime's own graph optimizations."""

import numpy as np
import onnx.parser
import onnxruntime
import pytest

from onnxtrain.errors import DataError, ModelError
from onnxtrain.runtime.session import _for_missing_kernel, open_session, run_session

LEVELS = onnxruntime.GraphOptimizationLevel
ONX = onnx.parser.parse_model('<ir_version: 10, opset_import: ["" : 21]> g (float[2] X) => (float[2] Y) { Y = Neg(X) }')


@pytest.fixture
def broken_above(monkeypatch):
    """``broken_above(level)``: onnxruntime opens sessions of this level of optimization and below only."""
    opened = onnxruntime.InferenceSession

    def limit(level):
        def session(content, options, **settings):
            if options.graph_optimization_level.value > level.value:
                raise RuntimeError("the Transpose of a Pad is lost")
            return opened(content, options, **settings)

        monkeypatch.setattr(onnxruntime, "InferenceSession", session)

    return limit


@pytest.mark.parametrize("level", [LEVELS.ORT_ENABLE_BASIC, LEVELS.ORT_DISABLE_ALL])
def test_what_rearrangements_break_is_opened_with_fewer(broken_above, level):
    broken_above(level)
    with pytest.warns(
        RuntimeWarning, match="the Transpose of a Pad is lost. It is loaded with fewer graph optimizations"
    ):
        session = open_session(ONX)
    np.testing.assert_array_equal(session.run(None, {"X": np.float32([1, 2])})[0], [-1, -2])


@pytest.mark.parametrize("thorough", [True, False])
def test_a_model_that_is_at_fault_is_refused(thorough):
    onx = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (string[2] X) => (string[2] Y) { Y = Neg(X) }'
    )
    with pytest.raises(ModelError, match="cannot load the model"):
        open_session(onx, thorough=thorough)


@pytest.mark.parametrize("op_type", ["Erf", "LeakyRelu", "Cosh"])
def test_an_operator_without_kernel_for_float64_is_named(op_type):
    onx = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> g (double[2] X) => (double[2] Y) {{ Y = {op_type}(X) }}'
    )
    with pytest.raises(ModelError, match=f"It has no {op_type} for float64. Set dtype='float32'"):
        open_session(onx)


def test_an_operator_without_kernel_for_another_type_has_a_remedy():
    onx = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[n, n] X) => (bool[n, n] Y) { Y = EyeLike <dtype = 9> (X) }'
    )
    with pytest.raises(
        ModelError, match=r"has no EyeLike for one of the types here\. .* with dynamo=True.*; else cast"
    ):
        open_session(onx)


@pytest.mark.skipif(not onnx.defs.has("Swish"), reason="onnx does not know Swish")
def test_a_new_operator_without_kernel_has_a_remedy():
    """Later versions of onnxruntime may have the operator, so the message is given."""
    onx = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 24]> g (float[n] X) => (float[n] Y) { Y = Swish(X) }'
    )
    problem = "Could not find an implementation for Swish(24) node with name ''"
    remedy = _for_missing_kernel(onx.SerializeToString(), problem)
    assert remedy == ". It does not run Swish yet. Export the model with opset 21, which has other operators for it"


class Stopped(Exception):
    """The exception of a user's signal handler."""


@pytest.mark.parametrize(
    "error, expected", [(Stopped, Stopped), (TimeoutError, TimeoutError), (RuntimeError, DataError)]
)
def test_a_signal_handler_that_raises_is_no_error_of_onnxruntime(error, expected):
    class Interrupted:
        def run(self, outputs, feeds):
            raise error

    with pytest.raises(expected):
        run_session(Interrupted(), {})
