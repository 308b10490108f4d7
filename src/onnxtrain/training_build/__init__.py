"""The only user of onnxruntime-training's private interface: its gradient builders, with preparation and checks.

It is an independent check of the built-in rules. It lacks operators and is
silently wrong for some, which :func:`derive` refuses by name; its other gradients
agree with the built-in rules. onnxruntime-training 1.19.2 accepts graphs up to
opset 21 and IR version 10. PyTorch is not needed.
"""

from onnxtrain.training_build.derivation import append_gradients, derive
from onnxtrain.training_build.native import advice, is_available, require

__all__ = ["advice", "append_gradients", "derive", "is_available", "require"]
