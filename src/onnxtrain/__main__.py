"""``python -m onnxtrain``: the text of :func:`onnxtrain.show_versions`."""

from onnxtrain.versions import show_versions

show_versions()
