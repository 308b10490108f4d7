"""Operators declared non-differentiable: their derivative is zero wherever it exists."""

from __future__ import annotations

from onnxtrain.autodiff.registry import no_gradient

# Piecewise constant.
no_gradient("Sign", "Floor", "Ceil", "Round")

# The outputs are integers of products. QLinearConv and QLinearMatMul round real products: they are not declared.
no_gradient("ConvInteger", "MatMulInteger")

# The outputs are booleans or indices.
no_gradient("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "IsInf", "IsNaN")
no_gradient("ArgMax", "ArgMin", "NonMaxSuppression", "NonZero")

# The operands are booleans or integers.
no_gradient("And", "Not", "Or", "Xor")
no_gradient("BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor")

# Only the shape of the operand matters, or there is no operand.
no_gradient("Constant", "ConstantOfShape", "EyeLike", "Shape", "Size")
no_gradient("BlackmanWindow", "HammingWindow", "HannWindow", "MelWeightMatrix")

# Random draws, which are not reparameterized.
no_gradient("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")

# Text processing.
no_gradient("RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit", "TfIdfVectorizer")
