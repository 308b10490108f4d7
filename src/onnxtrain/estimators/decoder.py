"""The labels and probabilities of a classifier, from the results of its model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit, softmax

from onnxtrain.errors import warn
from onnxtrain.losses.link import Link, normalized_expit

#: The distance from [0, 1] at which a probability is more than rounded.
_ROUNDING = 1e-3


@dataclass(frozen=True)
class LabelDecoder:
    """The mapping from a classifier's scores or probabilities to labels and probabilities.

    Attributes
    ----------
    link : Link
        The link of the model.
    classes : ndarray
        The labels by column.
    n_labels : int
        The number of labels for multilabel targets, else 0.
    likely : bool
        Whether the scores define probabilities.
    of_votes : bool
        Whether scores are numbers of votes plus a fraction that does not decide: the first class with the most votes is
        predicted.
    """

    link: Link
    classes: np.ndarray
    n_labels: int
    likely: bool
    of_votes: bool = False

    @property
    def threshold(self) -> float:
        """The score of a tie."""
        return 0.5 if self.link is Link.PROBABILITY else 0.0

    @property
    def takes_scores(self) -> bool:
        """Whether probabilities are computed from scores; otherwise the output of the model holds them."""
        of_classes = not self.n_labels and self.link in (Link.SIGMOIDS, Link.NORMALIZED_SIGMOID)
        return self.link is Link.IDENTITY or of_classes

    def probabilities(self, found: np.ndarray) -> np.ndarray:
        """Return probabilities, computed from scores (:attr:`takes_scores`) or from the model's probabilities.

        As in the loss, the probabilities of classes are normalized to sum to one, which Sigmoids per class do not.
        """
        if self.link is Link.PROBABILITY:
            _warn_of_range(found)
        if self.link is Link.IDENTITY:
            found = expit(found) if self.n_labels or found.shape[1] == 1 else softmax(found, axis=1)
        elif self.takes_scores:
            found = normalized_expit(found)
        elif found.shape[1] > 1 and not self.n_labels:
            sums = found.sum(axis=1, keepdims=True)
            found = found / np.where(sums > 0, sums, 1)
        return np.hstack([1 - found, found]) if found.shape[1] == 1 else found

    def labels(self, found: np.ndarray) -> np.ndarray:
        """Return the predicted classes or, for multilabel targets, the indicator matrix."""
        if self.n_labels:
            return (found > self.threshold).astype(np.int64)
        found = np.rint(found) if self.of_votes else found
        best = found[:, 0] > self.threshold if found.shape[1] == 1 else found.argmax(axis=1)
        return self.classes[best.astype(np.intp)]

    def margins(self, found: np.ndarray) -> np.ndarray:
        """Return scores whose largest decides; for multilabel targets, scores whose signs decide."""
        if self.n_labels:
            return found - self.threshold
        return np.hstack([np.zeros_like(found), found - self.threshold]) if found.shape[1] == 1 else found


def _warn_of_range(found: np.ndarray) -> None:
    """Warn of probabilities that training has moved out of [0, 1]."""
    low, high = found.min(initial=0.0), found.max(initial=1.0)
    if low < -_ROUNDING or high > 1 + _ROUNDING:
        warn(
            f"A probability of the trained model is {low if low < -_ROUNDING else high:.3g}. The model computes its "
            "probabilities from the weights without a Softmax or Sigmoid, so training can move them out of [0, 1]. "
            "Lower learning_rate, or train only other weights, weights_to_train=[...]."
        )
