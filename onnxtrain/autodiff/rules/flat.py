"""Operators that are flat on purpose: their derivative is zero wherever it exists."""

from __future__ import annotations

from onnxtrain.autodiff.registry import no_gradient

# Steps: constant between their jumps.
no_gradient("Sign", "Floor", "Ceil", "Round")

# Integers come out, or numbers of eight bits: the steps of quantization.
no_gradient("ConvInteger", "MatMulInteger", "QLinearConv", "QLinearMatMul", "QuantizeLinear")

# Answers and positions.
no_gradient("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "IsInf", "IsNaN")
no_gradient("ArgMax", "ArgMin", "NonMaxSuppression", "NonZero")

# Bits and booleans.
no_gradient("And", "Not", "Or", "Xor")
no_gradient("BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor")

# Only the shape of the operand matters, or it has none.
no_gradient("Constant", "ConstantOfShape", "EyeLike", "Shape", "Size")
no_gradient("BlackmanWindow", "HammingWindow", "HannWindow", "MelWeightMatrix")

# Drawn at random: what is drawn does not move with the operand.
no_gradient("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")

# Text.
no_gradient("RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit", "TfIdfVectorizer")
