"""
How does an operator of one's own get a gradient?
=================================================

A model may have an operator that only its author knows. Asked for its gradient, onnxtrain says that it has none. A rule
of one line of mathematics is enough, and a check against central differences shows whether it is right.
"""

import matplotlib.pyplot as plt
import numpy as np
import onnx.parser
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from onnxtrain import gradient_rule, onnx_derivative
from onnxtrain.errors import GradientError
from onnxtrain.testing import GradientMismatch, check_gradient

model = onnx.parser.parse_model("""
    <ir_version: 10, opset_import: ["" : 21, "ours" : 1]>
    bumps (float[n] x) => (float[n] y) { y = ours.Bump(x) }""")
try:
    onnx_derivative(model)
except GradientError as e:
    print(f"{type(e).__name__}: {e}")

# %%
# Its author says what it computes, exp(-x²), to the evaluator of onnx. The rule says what the chain rule says:
# the gradient of x is -2 x y times that of y.


class Bump(OpRun):
    """The operator, in numpy."""

    op_domain = "ours"

    def _run(self, x):
        return (np.exp(-(x**2)),)


def run(onx, feeds):
    """Run a model that has the operator."""
    return ReferenceEvaluator(onx, new_ops=[Bump]).run(None, feeds)


@gradient_rule("Bump", domain="ours")
def bump(op, node, dy):
    """Return the gradient of x for that of y."""
    (x,), (y,) = node.inputs, node.outputs
    return op.Mul(op.Mul(-2.0, op.Mul(x, y)), dy)


x = np.linspace(-3, 3, 121, dtype=np.float32)
errors = check_gradient(model, {"x": x[::10].astype(float)}, run=run)
print(f"largest difference from central differences: {errors['x']:.1e}")
assert errors["x"] < 1e-7

# %%
# A wrong rule does not pass: here the factor 2 is missing.


@gradient_rule("Wrong", domain="ours")
def wrong(op, node, dy):
    """Return half of the gradient."""
    (x,), (y,) = node.inputs, node.outputs
    return op.Mul(op.Neg(op.Mul(x, y)), dy)


other = onnx.ModelProto()
other.CopyFrom(model)
other.graph.node[0].op_type = "Wrong"
Wrong = type("Wrong", (Bump,), {})
try:
    check_gradient(
        other,
        {"x": x[::10].astype(float)},
        run=lambda *a: ReferenceEvaluator(a[0], new_ops=[Wrong]).run(None, a[1]),
    )
    raise AssertionError("a wrong rule has passed")
except GradientMismatch as e:
    print("refused:", str(e).splitlines()[0])

# %%
# The derived graph, at 121 points:

derived = onnx_derivative(model)
(slope,) = run(derived, {"x": x, "y_grad": np.ones_like(x)})
fig, ax = plt.subplots(figsize=(6, 4), layout="constrained")
ax.plot(x, run(model, {"x": x})[0], label="y")
ax.plot(x, slope, label="its derivative, by the rule")
ax.plot(x, np.gradient(np.exp(-(x**2)), x), "k:", label="by differences")
ax.set(xlabel="x")
ax.legend()
