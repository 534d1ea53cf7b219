"""TensorBoard: a run's tensors step by step, as TensorBoard shows scalars and histograms.

Written by the `tensorboard` package alone, without TensorFlow.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from fpemu.analysis.answers import answers
from fpemu.analysis.carried import carried
from fpemu.analysis.files import check_folder
from fpemu.analysis.report.question import ask
from fpemu.analysis.report.sections.tensors import worst_first
from fpemu.analysis.what_if import percent
from fpemu.errors import InputError, MissingExtraError
from fpemu.tallies import Tally, exponent_of

if TYPE_CHECKING:
    from fpemu.analysis.asked import Asked
    from fpemu.analysis.by_recipe import Target
    from fpemu.analysis.records import Record
    from fpemu.analysis.report.summary import Report
    from fpemu.analysis.trace import Trace

__all__ = ["CHARTS", "write_tensorboard"]

#: Tensors that get charts of their own unless asked for otherwise: thousands freeze the browser.
CHARTS = 50

_SHARES = ("lost", "underflow", "overflow")


def write_tensorboard(
    trace: Trace,
    folder: str | os.PathLike[str],
    *,
    to: Asked | None = None,
    report: Report | None = None,
    tensors: int = CHARTS,
) -> None:
    """Write a trace as an event file that `tensorboard --logdir FOLDER` shows.

    >>> import numpy as np
    >>> from fpemu.analysis.export import write_tensorboard
    >>> from fpemu.analysis.trace import Trace
    >>> trace = Trace()
    >>> trace.record("fc1", "weight", np.float32([1e-9, 2.0]), step=0)
    >>> write_tensorboard(trace, "logs", to="float16")  # doctest: +SKIP

    Scalars: the run's own as "run/NAME"; of each tensor log2 of amax and rms, and what the cast
    `to` loses unscaled, in percent; of each kind what it loses. Histograms: log2|x| by binade.
    Gradients are taken without the loss scale that they were recorded times. Text: the verdict,
    with a report. tensors: how many get charts, those that lose most of the report, else the first.
    Each call adds a file to the folder. Needs tensorboard (extra "tensorboard").
    """
    if not isinstance(tensors, int) or isinstance(tensors, bool) or tensors < 0:
        raise InputError(f"tensors={tensors!r}: must be how many tensors get charts, from 0 on")
    make = _package()
    check_folder(os.path.join(os.path.dirname(os.fspath(folder)) or ".", "x"))
    cast = report.to if report is not None else ask(trace, to=to, formats=()).to
    chosen = _chosen(trace, report, tensors)
    writer = make.writer(os.fspath(folder))
    try:
        for step, summary in _summaries(trace, cast, chosen, make):
            writer.add_event(make.event(step, summary))
        if report is not None:
            writer.add_event(make.event(0, make.text("verdict", _verdict(report))))
    finally:
        writer.close()


def _chosen(trace: Trace, report: Report | None, tensors: int) -> set[tuple[str, str]]:
    if report is None:
        return set(trace.tensors()[:tensors])
    return {(row.name, row.kind) for row in worst_first(report.tensors)[:tensors]}


def _verdict(report: Report) -> str:
    reasons = "".join(f"\n* {reason}" for reason in report.verdict.reasons)
    return f"**{report.verdict.headline}**\n{reasons}"


def _summaries(
    trace: Trace, cast: Target, chosen: set[tuple[str, str]], make: Any
) -> Iterator[tuple[int, Any]]:
    answered = answers(trace, [cast])
    for scalar in trace.scalars():
        yield scalar.step, make.scalars({f"run/{scalar.name}": scalar.value})
    scales = carried(trace)
    kinds: dict[tuple[int, str], Any] = {}
    for record in trace.records():
        factor = scales.factor(record)
        outcome = answered.outcome(record, cast, factor)
        key = record.step, record.kind
        kinds[key] = kinds[key] + outcome if key in kinds else outcome
        if (record.name, record.kind) in chosen:
            where = f"{record.kind}/{record.name}"
            lost = {
                f"{what}_percent/{where}": percent(getattr(outcome, what), outcome.nonzero)
                for what in _SHARES
            }
            yield record.step, make.scalars(lost | _sizes(record, factor, where))
            yield record.step, make.histogram(f"log2/{where}", _bins(record, factor))
    for (step, kind), outcome in kinds.items():
        shares = {f"{what}_percent/{kind}": percent(getattr(outcome, what), outcome.nonzero)
                  for what in _SHARES}  # fmt: skip
        yield step, make.scalars(shares)


def _sizes(record: Record, factor: float, where: str) -> dict[str, float]:
    """log2 of the largest magnitude and of the rms, where there is one."""
    moments = record.moments
    sizes = {"amax": moments.amax, "rms": moments.rms}
    return {
        f"log2_{what}/{where}": math.log2(size) + exponent_of(factor)
        for what, size in sizes.items()
        if size > 0  # neither zero nor the NaN of no values
    }


def _bins(record: Record, factor: float) -> list[tuple[float, float, float]]:
    """Left end, right end and count of each binade that is in use, and of those between."""
    counts = record.tally.exponents()
    used = np.flatnonzero(counts)
    if not used.size:
        return []
    first = Tally.EXPONENTS.start + exponent_of(factor)
    return [
        (first + k, first + k + 1, float(counts[k])) for k in range(int(used[0]), int(used[-1]) + 1)
    ]


class _Package:
    """The parts of the `tensorboard` package that write, under short names."""

    def __init__(self) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, tensor_shape_pb2
        from tensorboard.plugins.histogram import metadata as histogram
        from tensorboard.plugins.text import metadata as text
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self.writer = EventFileWriter
        self._event, self._summary = event_pb2.Event, summary_pb2.Summary
        self._tensor, self._shape = tensor_pb2.TensorProto, tensor_shape_pb2.TensorShapeProto
        self._histogram, self._text = histogram, text

    def event(self, step: int, summary: Any) -> Any:
        return self._event(step=step, summary=summary)

    def scalars(self, values: dict[str, float]) -> Any:
        value = self._summary.Value
        return self._summary(value=[value(tag=t, simple_value=v) for t, v in values.items()])

    def histogram(self, tag: str, bins: list[tuple[float, float, float]]) -> Any:
        shape = self._shape(dim=[self._shape.Dim(size=n) for n in (len(bins), 3)])
        tensor = self._tensor(
            dtype="DT_DOUBLE", tensor_shape=shape,
            tensor_content=np.array(bins, np.float64).tobytes(),
        )  # fmt: skip
        made = self._histogram.create_summary_metadata(None, "log2 of the magnitudes")
        return self._summary(value=[self._summary.Value(tag=tag, tensor=tensor, metadata=made)])

    def text(self, tag: str, words: str) -> Any:
        shape = self._shape(dim=[self._shape.Dim(size=1)])
        tensor = self._tensor(dtype="DT_STRING", tensor_shape=shape, string_val=[words.encode()])
        made = self._text.create_summary_metadata(None, "")
        return self._summary(value=[self._summary.Value(tag=tag, tensor=tensor, metadata=made)])


def _package() -> _Package:
    try:
        return _Package()
    except ImportError as error:
        raise MissingExtraError(
            "a TensorBoard log needs tensorboard, which is not installed; "
            "pip install 'fpemu[tensorboard]'"
        ) from error
