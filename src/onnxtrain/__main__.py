"""``python -m onnxtrain`` prints the output of :func:`onnxtrain.show_versions`."""

import argparse

from onnxtrain.versions import show_versions

argparse.ArgumentParser(
    prog="python -m onnxtrain",
    description="Print the versions of onnxtrain and of the libraries that it uses. To train a model, use Python: "
    "onnxtrain.OrtGradientRegressor or OrtGradientClassifier.",
    usage="%(prog)s [-h], which prints versions. To train, use Python: OrtGradientRegressor('model.onnx').fit(X, y)",
).parse_args()
show_versions()
