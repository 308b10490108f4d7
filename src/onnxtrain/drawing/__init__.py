"""Drawings of graphs as SVG: boxes in layers. No further library is needed."""

from onnxtrain.drawing.boxes import Box, boxes_of, folded
from onnxtrain.drawing.picture import Picture

__all__ = ["Box", "Picture", "boxes_of", "folded"]
