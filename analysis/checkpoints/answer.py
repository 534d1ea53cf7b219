"""Answer: what a scan comes to, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fpemu.analysis.checkpoints.rows import FormatRow, TensorRow
from fpemu.analysis.checkpoints.sizes import size
from fpemu.analysis.report.numbers import count, kind_words, share
from fpemu.analysis.shown import plain, shorten

__all__ = ["sentences"]

_KINDS = {
    "weight": "weights", "optimizer_state": "optimizer states", "weight_gradient": "gradients",
}  # fmt: skip


def sentences(
    tensors: Sequence[TensorRow], formats: Sequence[FormatRow], tolerance: float
) -> Iterator[str]:
    """Yield the answer: what is broken already, then for each kind the narrowest formats."""
    if not any(row.values for row in tensors):
        yield "There are no floating-point values to count."
        return
    broken = [row for row in tensors if row.broken]
    if broken:
        names = ", ".join(shorten(plain(row.name)) for row in broken[:3])
        more = f" and {count(len(broken) - 3)} more" if len(broken) > 3 else ""
        yield f"{_tensors(len(broken))} already with NaN or infinity in it: {names}{more}."
    for kind in dict.fromkeys(row.kind for row in formats):
        yield _kind(kind, [row for row in formats if row.kind == kind], tolerance)


def _kind(kind: str, rows: Sequence[FormatRow], tolerance: float) -> str:
    """The narrowest format that keeps every tensor of a kind as it is, and with scales."""
    ordered = sorted(rows, key=lambda row: row.bits)
    plainly = next((row for row in ordered if row.safe == row.tensors), None)
    scaled = next((row for row in ordered if not row.unsafe), None)
    what = f"{_KINDS.get(kind, kind_words(kind)).capitalize()} ({_tensors(rows[0].tensors)})"
    limit = f"(at most {share(100 * tolerance)} of any tensor lost to its range)"
    parts = []
    if plainly:
        parts.append(f"{plainly.to} keeps all unscaled, in {size(plainly.octets)}")
    if scaled and scaled is not plainly and (not plainly or scaled.bits < plainly.bits):
        also = "with a scale for each" if plainly else "needs a scale for each"
        parts.append(f"{scaled.to} {also}, in {size(scaled.octets)}")
    if parts:
        return f"{what}: {'; '.join(parts)} {limit}."
    best = min(rows, key=lambda row: (row.unsafe, row.worst_percent))
    return (
        f"{what}: none of the formats tried keeps them all {limit}; the nearest, {best.to}, "
        f"leaves {count(best.unsafe)} that lose up to {share(best.worst_percent)} at any scale."
    )


def _tensors(n: int) -> str:
    return f"{count(n)} tensor{'s' * (n != 1)}"
