"""The link between an output and its scores: probabilities and logits, a mean and its logarithm, labels.

A loss of probabilities is computed from the input of Softmax or Sigmoid: the
probability of a score of 1000 is 1 in floating point, its logarithm is 0 and the
gradient vanishes, while the score still has a useful gradient.
"""

from onnxtrain.losses.link.labels import join_labels
from onnxtrain.losses.link.outputs import choose_output
from onnxtrain.losses.link.scores import OUTPUT_IS, Link, Scores, scores_behind
from onnxtrain.losses.link.walk import n_columns

__all__ = ["OUTPUT_IS", "Link", "Scores", "choose_output", "join_labels", "n_columns", "scores_behind"]
