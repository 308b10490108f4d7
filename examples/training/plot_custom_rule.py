"""
How do I add a gradient rule for a custom operator?
===================================================

A model may contain a custom operator, for which onnxtrain has no gradient rule. Deriving its gradient then raises a
``GradientError``. This example registers a rule of one line and checks it against central differences.
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
# The operator computes :math:`y = \exp(-x^2)`. A subclass of ``OpRun`` defines it for the reference evaluator of onnx.
# By the chain rule, the gradient of x is :math:`dx = -2 x y \, dy`.


class Bump(OpRun):
    """Compute the operator in numpy."""

    op_domain = "ours"

    def _run(self, x):
        return (np.exp(-(x**2)),)


def run(onx, feeds):
    """Run a model that contains the operator."""
    return ReferenceEvaluator(onx, new_ops=[Bump]).run(None, feeds)


@gradient_rule("Bump", domain="ours")
def bump(op, node, dy):
    """Return dx, given dy."""
    (x,), (y,) = node.inputs, node.outputs
    return op.Mul(op.Mul(-2.0, op.Mul(x, y)), dy)


x = np.linspace(-3, 3, 121, dtype=np.float32)
errors = check_gradient(model, {"x": x[::10].astype(float)}, run=run)
print(f"largest difference from central differences: {errors['x']:.1e}")
assert errors["x"] < 1e-7

# %%
# The check detects a wrong rule. In this one, the factor 2 is missing.


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
# The derived graph, evaluated at 121 points:

derived = onnx_derivative(model)
(slope,) = run(derived, {"x": x, "y_grad": np.ones_like(x)})
fig, ax = plt.subplots(figsize=(6, 4), layout="constrained")
ax.plot(x, run(model, {"x": x})[0], label="y")
ax.plot(x, slope, label="its derivative, by the rule")
ax.plot(x, np.gradient(np.exp(-(x**2)), x), "k:", label="by differences")
ax.set(xlabel="x")
ax.legend()
