"""Frames: the tensors of a report or a trace as a pandas DataFrame."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from fpemu.analysis.export.columns import STEPS, TENSORS, step_rows, tensor_rows
from fpemu.errors import MissingExtraError

if TYPE_CHECKING:
    import pandas

    from fpemu.analysis.asked import Asked
    from fpemu.analysis.report.summary import Report
    from fpemu.analysis.trace import Trace

__all__ = ["to_frame", "trace_frame"]

_TYPES = {"int": "int64", "float": "float64", "bool": "bool", "text": "str", "shape": "object"}


def to_frame(report: Report) -> pandas.DataFrame:
    """Return a report's tensors as a DataFrame, one row each.

    >>> import numpy as np
    >>> from fpemu.analysis import report
    >>> from fpemu.analysis.trace import Trace
    >>> trace = Trace()
    >>> trace.record("fc1", "weight", np.float32([1e-9, 2.0]), step=0)
    >>> frame = report.build(trace, to="float16").to_frame()  # doctest: +SKIP
    >>> frame.loc[0, ["name", "lost_percent"]].tolist()       # doctest: +SKIP
    ['fc1', 50.0]

    The columns are those of `tensor` in docs/report.schema.md; a number that does not exist is
    NaN. Needs pandas (extra "pandas"), else MissingExtraError.
    """
    return _frame(tensor_rows(report), TENSORS)


def trace_frame(trace: Trace, to: Asked | None = None) -> pandas.DataFrame:
    """Return a trace as a DataFrame: a row for each tensor at each recorded step.

    to: the cast whose losses are counted, unscaled; unless given, the trace's own, else float16.
    Gradients are taken without the loss scale that they were recorded times, which has a column.
    The columns are described in docs/report.schema.md. Needs pandas (extra "pandas").
    """
    return _frame(step_rows(trace, to), STEPS)


def _frame(rows: Iterable[Mapping[str, Any]], columns: Mapping[str, str]) -> pandas.DataFrame:
    try:
        import pandas
    except ImportError as error:
        raise MissingExtraError(
            "a data frame needs pandas, which is not installed; pip install 'fpemu[pandas]'"
        ) from error
    frame = pandas.DataFrame.from_records(list(rows), columns=list(columns))
    return frame.astype({name: _TYPES[kind] for name, kind in columns.items()})
