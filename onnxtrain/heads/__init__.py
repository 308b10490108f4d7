"""What an output ends in: the scores behind probabilities, the logarithm behind a mean.

A loss of probabilities is computed from what enters Softmax or Sigmoid: the
probability of a score of 1000 is 1 in floating point, its logarithm 0, and the
gradient is lost, while the score still tells how far it is from the label.
"""

from onnxtrain.heads.labels import join_labels
from onnxtrain.heads.outputs import choose_output
from onnxtrain.heads.scores import Link, Scores, scores_behind
from onnxtrain.heads.walk import n_columns

__all__ = ["Link", "Scores", "choose_output", "join_labels", "n_columns", "scores_behind"]
