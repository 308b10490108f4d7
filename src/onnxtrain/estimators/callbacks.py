"""scikit-learn's support of callbacks, which exists since version 1.9."""

from __future__ import annotations

from typing import TYPE_CHECKING

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # scikit-learn below 1.9
    if not TYPE_CHECKING:

        class CallbackSupportMixin:
            """A substitute for the mixin of newer versions."""

        def with_callbacks(method):
            """Return the method unchanged."""
            return method


__all__ = ["CallbackSupportMixin", "with_callbacks"]
