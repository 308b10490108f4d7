"""Rule of RoiAlign, in both modes and both ways to count coordinates."""

from __future__ import annotations

from itertools import product

import numpy as np
import onnx.parser
import onnxruntime
import pytest

from onnxtrain.grad_helper import onnx_derivative
from onnxtrain.runtime.session import run

rng = np.random.default_rng(32)

X = rng.uniform(-1, 1, (2, 2, 5, 6))
#: As x1, y1, x2, y2: inside, over an edge of the image, far outside, and smaller than a pixel.
REGIONS = np.array(
    [
        [0.3, 0.6, 4.1, 3.7],
        [2.1, -1.3, 7.4, 2.2],
        [-2.6, 2.3, 2.1, 9.7],
        [2.37, 1.41, 2.82, 2.13],
        [9.3, 9.2, 11.4, 12.1],
    ]
)
IMAGES = np.array([0, 1, 1, 0, 0])

WAYS = [
    {"mode": mode, "coordinate_transformation_mode": way, "output_height": 2, "output_width": 3, "spatial_scale": 0.93}
    for mode, way in product(["avg", "max"], ["half_pixel", "output_half_pixel"])
]
#: How many samples a region is wide enough for is known at run time only, and with it some shapes.
AT_RUN_TIME = pytest.mark.parametrize("check_rule", ["symbolic", "symbolic-open"], indirect=True)


@pytest.mark.parametrize("attributes", WAYS)
def test_a_number_of_samples(check_rule, attributes):
    check_rule("RoiAlign", [X, REGIONS, IMAGES], {**attributes, "sampling_ratio": 2}, max_entries=12)


@AT_RUN_TIME
@pytest.mark.parametrize("attributes", WAYS)
def test_as_many_samples_as_fit(check_rule, attributes):
    check_rule("RoiAlign", [X, REGIONS, IMAGES], attributes, max_entries=12)


@AT_RUN_TIME
def test_defaults(check_rule):
    """One bin, one place in it for each pixel that the region is long."""
    check_rule("RoiAlign", [X, REGIONS, IMAGES])


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("regions", [np.zeros((0, 4)), np.array([[2.3, 1.2, 2.3, 1.2], [3.1, 3.2, 1.3, 1.4]])])
def test_no_region_and_regions_of_no_size(mode, regions, request):
    if not len(regions) and onnxruntime.__version__.startswith("1.19."):
        request.applymarker(pytest.mark.xfail(reason="its ReduceSum wants rows"))
    onx = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 21]> g (double[N,C,H,W] X, double[R,4] B, int64[R] I)
        => (double[R,C,2,2] Y) {{ Y = RoiAlign <mode = "{mode}", output_height = 2, output_width = 2> (X, B, I) }}"""
    )
    n = len(regions)
    feeds = {"X": X, "B": regions, "I": np.zeros(n, np.int64), "Y_grad": np.ones((n, 2, 2, 2))}
    dx, dregions = run(onnx_derivative(onx), feeds)
    np.testing.assert_array_equal(dx, np.zeros_like(X))
    np.testing.assert_array_equal(dregions, np.zeros_like(regions))


@pytest.mark.parametrize("scale", [1.0, 0.47])
@pytest.mark.parametrize("image", ["N,C,H,W", "2,2,5,6"])
def test_max_roi_pool(check_float32, image, scale):
    """In float32, by onnxruntime: onnx.reference does not have it. A bin outside of the image is 0."""
    onx = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 21]> g (float[{image}] X, float[R,5] B) => (float[R,C,2,3] Y)
        {{ Y = MaxRoiPool <pooled_shape = [2, 3], spatial_scale = {scale}> (X, B) }}"""
    )
    pixels = rng.permutation(X.size).reshape(X.shape) / 5  # further apart than a step
    check_float32(onx, {"X": pixels, "B": np.column_stack([IMAGES, REGIONS])})
