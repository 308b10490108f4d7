"""``python -m onnxtrain`` prints the output of :func:`onnxtrain.show_versions`."""

from onnxtrain.versions import show_versions

show_versions()
