"""Pieces: lines scaled piece by piece: amax, scale and element while they are in the cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fpemu.elementwise import Draws
from fpemu.kernels.cpu_blocks import amax_loop, factor_loop
from fpemu.kernels.pool import run_chunks
from fpemu.scaling.elements import Element
from fpemu.scaling.layout import Lines
from fpemu.scaling.rules import ScaleRule, Scales

__all__ = [
    "PIECE",
    "BlockScales",
    "Done",
    "Piece",
    "each_piece",
    "encode_piece",
    "pieces_of",
    "round_piece",
    "scale_lines",
    "scales_of_blocks",
    "times",
]

Array = np.ndarray[Any, Any]

PIECE = 1 << 16  #: numbers: they and what is made of them stay in the second cache

Place = tuple[slice, slice]


class Piece(NamedTuple):
    """Some lines, and how they are scaled."""

    place: Place  #: rows and columns of the lines
    x: Array
    encode: Array  #: each row's factor, or divisor, from numbers to what the element sees
    decode: Array  #: the same from elements to values
    draws: Draws | None


class Done(NamedTuple):
    """The scales of lines, as stored: of each block, and of the tensor."""

    stored: Array
    whole: np.float32


def scale_lines(
    laid: Lines,
    rule: ScaleRule,
    element: Element,
    draws: Draws | None,
    threads: int | None,
    sink: Callable[[Piece], None],
) -> Done:
    """Find the scales of lines, and hand each piece to a sink while it is in the cache."""
    pieces = pieces_of(laid)
    find = _by_itself if _apart(laid, rule) else _after_all
    scales_of, done = find(laid, rule, element, threads, pieces)
    width = laid.lines.shape[1]

    def work(index: int) -> None:
        rows, columns = place = pieces[index]
        scales = scales_of(index)
        first = rows.start * width + columns.start
        own = draws and draws._replace(offset=draws.offset + first)
        sink(Piece(place, laid.lines[place], scales.encode, scales.decode, own))

    each_piece(pieces, work, threads)
    return done()


def round_piece(piece: Piece, rule: ScaleRule, element: Element, out: Array) -> None:
    """Write what is left of a piece's numbers; out may be they themselves."""
    fused = element.fused("round") if _multiplies(rule) and not _one(piece.x, out) else None
    if fused is not None:
        fused(piece.x, out, piece.encode, piece.decode)
        return
    times(rule.divides_first, piece.x, piece.encode, out)
    element.round(out.reshape(-1), piece.draws)
    times(rule.divides, out, piece.decode, out)


def encode_piece(piece: Piece, rule: ScaleRule, element: Element, codes: Array) -> None:
    """Write the codes of a piece's numbers."""
    fused = element.fused("encode") if _multiplies(rule) else None
    if fused is not None:
        fused(piece.x, codes, piece.encode, piece.decode)
        return
    scaled = np.empty(piece.x.shape, np.float32)
    times(rule.divides_first, piece.x, piece.encode, scaled)
    codes[:] = element.encode(scaled.reshape(-1), piece.draws).reshape(codes.shape)


def times(divides: bool, x: Array, factors: Array, out: Array) -> None:
    """Write each row times its factor, or divided by it; out may be x."""
    if _one(x, out):
        factor_loop(divides, in_place=True)(x, factors)
    else:
        factor_loop(divides)(x, factors, out)


def _multiplies(rule: ScaleRule) -> bool:
    return not (rule.divides or rule.divides_first)


def _one(x: Array, out: Array) -> bool:
    """Whether two arrays of a shape are one: a loop over both would not be vectorised."""
    return x.ctypes.data == out.ctypes.data


# --- where scales come from --------------------------------------------------------------------

ScalesOf = Callable[[int], Scales]
Found = tuple[ScalesOf, Callable[[], Done]]


def _apart(laid: Lines, rule: ScaleRule) -> bool:
    """Whether a piece holds all that its scales depend on."""
    return not rule.whole_first and laid.tile == 1 and laid.lines.shape[1] <= PIECE


def _by_itself(
    laid: Lines, rule: ScaleRule, element: Element, threads: int | None, pieces: list[Place]
) -> Found:
    """Each piece's scales come from that piece, when it is there."""
    stored = np.empty(laid.lines.shape[0], rule.stored)
    whole = rule.whole(np.float32(0), element)

    def scales_of(index: int) -> Scales:
        rows, _ = pieces[index]
        amax = np.empty(rows.stop - rows.start, np.uint32)
        amax_loop(laid.lines.shape[1])(laid.lines[rows].view(np.uint32), amax)
        scales = _scales(rule, element, amax, whole)
        stored[rows] = scales.stored
        return scales

    return scales_of, lambda: Done(stored, whole)


def _after_all(
    laid: Lines, rule: ScaleRule, element: Element, threads: int | None, pieces: list[Place]
) -> Found:
    """Scales that depend on numbers of several pieces come from a first pass over all."""
    found = scales_of_blocks(laid, rule, element, threads)
    encode, decode = laid.spread(found.scales.encode), laid.spread(found.scales.decode)

    def scales_of(index: int) -> Scales:
        rows, _ = pieces[index]
        return Scales(encode[rows], decode[rows], found.scales.stored)

    return scales_of, lambda: Done(found.scales.stored, found.whole)


class BlockScales(NamedTuple):
    """The scales of all blocks of an array, and what they come from."""

    amax: Array  #: each block's largest magnitude, as bits
    whole: np.float32  #: the scale of the tensor
    scales: Scales


def scales_of_blocks(
    laid: Lines, rule: ScaleRule, element: Element, threads: int | None
) -> BlockScales:
    """Return the scales of all blocks, by one pass over the array."""
    amax = laid.shared(_amax(laid, threads))
    most = amax.max(initial=0).reshape(1).view(np.float32)[0]
    with np.errstate(all="ignore"):
        whole = rule.whole(most, element)
    return BlockScales(amax, whole, _scales(rule, element, amax, whole))


def _scales(rule: ScaleRule, element: Element, amax: Array, whole: np.float32) -> Scales:
    with np.errstate(all="ignore"):
        made = rule.scales(amax.view(np.float32), element, whole)
    return Scales(
        np.ascontiguousarray(made.encode, np.float32),
        np.ascontiguousarray(made.decode, np.float32),
        np.ascontiguousarray(made.stored),
    )


def _amax(laid: Lines, threads: int | None) -> Array:
    """Each line's largest magnitude, as bits."""
    words, count, pieces = laid.lines.view(np.uint32), laid.lines.shape[0], pieces_of(laid)
    parts = [np.zeros(rows.stop - rows.start, np.uint32) for rows, _ in pieces]

    def work(index: int) -> None:
        part = words[pieces[index]]
        amax_loop(part.shape[1])(part, parts[index])

    each_piece(pieces, work, threads)
    amax = np.zeros(count, np.uint32)
    for (rows, _), part in zip(pieces, parts, strict=True):
        np.maximum(amax[rows], part, out=amax[rows])
    return amax


# --- walking over them -------------------------------------------------------------------------


def pieces_of(laid: Lines) -> list[Place]:
    """Return the places of the pieces; a line of PIECE numbers and more lies in several."""
    return list(laid.pieces(PIECE))


def each_piece(pieces: list[Place], work: Callable[[int], None], threads: int | None) -> None:
    """Do each piece's work, on threads where there are many."""

    def chunk(start: int, stop: int) -> None:
        for index in range(-(-start // PIECE), -(-stop // PIECE)):
            work(index)

    run_chunks(chunk, len(pieces) * PIECE, threads)
