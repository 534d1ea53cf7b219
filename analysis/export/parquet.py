"""Parquet: the tensors of a report or a trace as one Parquet file."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from fpemu.analysis.export.columns import STEPS, TENSORS, step_rows, tensor_rows
from fpemu.analysis.files import write_bytes
from fpemu.analysis.trace import Trace
from fpemu.errors import MissingExtraError

if TYPE_CHECKING:
    from fpemu.analysis.asked import Asked
    from fpemu.analysis.report.summary import Report

__all__ = ["write_parquet"]

_GROUP = 50_000  # rows held as Python objects at a time


def write_parquet(
    source: Report | Trace,
    path: str | os.PathLike[str],
    *,
    to: Asked | None = None,
) -> None:
    """Write a report's tensors, or a trace's tensors at each step, as a Parquet file.

    >>> import numpy as np
    >>> from fpemu.analysis.export import write_parquet
    >>> from fpemu.analysis.trace import Trace
    >>> trace = Trace()
    >>> trace.record("fc1", "weight", np.float32([1e-9, 2.0]), step=0)
    >>> write_parquet(trace, "run.parquet", to="float16")  # doctest: +SKIP

    The columns are described in docs/report.schema.md; a number that does not exist is null. The
    file's metadata, key "fpemu", hold the trace's own as JSON, or the report's verdict. to: the
    cast of a trace's losses. The file appears whole or not at all.
    Needs pyarrow (extra "parquet"), else MissingExtraError.
    """
    if isinstance(source, Trace):
        facts: Any = {"metadata": dict(source.metadata)}
        body = _bytes(step_rows(source, to), STEPS, facts)
    else:
        facts = {"to": str(source.to), "verdict": source.verdict.to_json()}
        body = _bytes(tensor_rows(source), TENSORS, facts)
    write_bytes(path, body)


def _bytes(rows: Iterable[Mapping[str, Any]], columns: Mapping[str, str], facts: Any) -> bytes:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError(
            "a Parquet file needs pyarrow, which is not installed; pip install 'fpemu[parquet]'"
        ) from error
    types = {
        "text": pyarrow.string(),
        "int": pyarrow.int64(),
        "float": pyarrow.float64(),
        "bool": pyarrow.bool_(),
        "shape": pyarrow.list_(pyarrow.int64()),
    }
    schema = pyarrow.schema(
        [(name, types[kind]) for name, kind in columns.items()],
        metadata={"fpemu": json.dumps(facts, default=str)},
    )
    sink, every = pyarrow.BufferOutputStream(), iter(rows)
    with pyarrow.parquet.ParquetWriter(sink, schema, compression="zstd") as writer:
        while group := list(itertools.islice(every, _GROUP)):
            writer.write_table(pyarrow.Table.from_pylist(group, schema=schema))
    return bytes(sink.getvalue())
