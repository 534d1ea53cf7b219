"""Digits: 1,797 real handwritten digits of 8 x 8 pixels, shipped with the package."""

from __future__ import annotations

from importlib import resources
from typing import Any, NamedTuple

import numpy as np

__all__ = ["ATTRIBUTION", "Digits", "digits"]

#: What CC BY 4.0 asks to be shown with the data; data/digits.md says the rest.
ATTRIBUTION = (
    "Optical Recognition of Handwritten Digits, E. Alpaydin and C. Kaynak, 1998, "
    "UCI Machine Learning Repository, https://doi.org/10.24432/C50P49, CC BY 4.0"
)


class Digits(NamedTuple):
    """Images and their labels, in two parts that share no image."""

    train_images: np.ndarray[Any, Any]  #: float32 (1437, 64), 0 to 1 in steps of 1/16
    train_labels: np.ndarray[Any, Any]  #: int64 (1437,), 0 to 9
    test_images: np.ndarray[Any, Any]  #: float32 (360, 64)
    test_labels: np.ndarray[Any, Any]  #: int64 (360,)


def digits() -> Digits:
    """Return the handwritten digits, every fifth one set apart for testing.

    >>> from fpemu.analysis.digits import digits
    >>> found = digits()
    >>> found.train_images.shape, found.test_images.shape, float(found.train_images.max())
    ((1437, 64), (360, 64), 1.0)

    A pixel is one of 0/16, 1/16 to 16/16, exactly. Source: see `ATTRIBUTION`.
    """
    file = resources.files("fpemu.analysis") / "data" / "digits.npz"
    with file.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
        images = stored["images"].reshape(-1, 64).astype(np.float32) / np.float32(16)
        labels = stored["labels"].astype(np.int64)
    test = np.arange(len(labels)) % 5 == 0
    return Digits(images[~test], labels[~test], images[test], labels[test])
