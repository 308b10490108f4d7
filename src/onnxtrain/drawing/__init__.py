"""Graphs as pictures: boxes in layers, written as SVG. Nothing has to be installed for it."""

from onnxtrain.drawing.boxes import Box, boxes_of, folded
from onnxtrain.drawing.picture import Picture

__all__ = ["Box", "Picture", "boxes_of", "folded"]
