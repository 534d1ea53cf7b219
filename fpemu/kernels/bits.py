"""The scalar bodies over bit patterns: round, encode, decode. One source for every target.

`build(word, mantissa, jit)` returns the bodies for one word: uint32 for float32, uint64 for
float64. `jit` compiles the inner functions (numba's njit, cuda.jit(device=True)) or leaves them
plain Python, which is how the tests run them.

Rules that keep the targets equal, each learnt from a difference:
- every operation is wrapped in the word type (numba widens u32 + u32 to uint64);
- nothing wraps around (the simulator warns, and wrapped results differ between targets);
- no branches but on the constants `s`, conditional expressions only, so that LLVM vectorises;
- no min() or max(), no floats, no views.

The algorithm. Take the magnitude pattern `a` as `v << gap` in units of the word's smallest
subnormal, with v its significand (hidden bit set). The quantum of the target there is bit
`drop` of v: everything below is rounded by one addition and a mask. A carry runs into the next
exponent by itself. `rise` counts the target's binades from its lowest, so that the code is
(rise << mantissa bits) + (v >> drop).

A stochastic draw of n bits comes as its complement, spare = 2**n - 1 - draw: "fraction + draw
carries" is then "fraction > spare". LLVM turns the sum, or a comparison with a complement, into
an overflow intrinsic, which it does not vectorise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Bodies", "build", "build_lead"]


class Bodies(NamedTuple):
    """The scalar bodies of one word type, compiled for one target."""

    round: Callable[..., Any]  #: (x, spare, grid, values, shape) -> bits of the rounded value
    encode: Callable[..., Any]  #: (x, spare, grid, codes, shape) -> code of the rounded value
    decode: Callable[..., Any]  #: (code, facts, narrow) -> bits


def build_lead(U: Any, jit: Callable[[Any], Any], leading_zeros: Any = None) -> Any:
    """Return lead_of(v): the index of the highest set bit of v < 2**32, and 0 for 0.

    leading_zeros: a target's own count of the leading zeros of a uint32, as a uint32.
    """
    ZERO = U(0)
    ONE = U(1)

    @jit
    def counted(v):  # type: ignore[no-untyped-def]
        return U(U(31) - U(leading_zeros(np.uint32(v | ONE))))

    if leading_zeros is not None:
        return counted

    @jit
    def lead_of(v):  # type: ignore[no-untyped-def]
        """Index of the highest set bit of v < 2**32 (0 for 0)."""
        lead = U(16) if v > U(0xFFFF) else ZERO
        v = U(v >> lead)
        step = U(8) if v > U(0xFF) else ZERO
        lead = U(lead + step)
        v = U(v >> step)
        step = U(4) if v > U(0xF) else ZERO
        lead = U(lead + step)
        v = U(v >> step)
        step = U(2) if v > U(3) else ZERO
        lead = U(lead + step)
        v = U(v >> step)
        return U(lead + (ONE if v > ONE else ZERO))

    return lead_of


def build(
    U: Any, mantissa: int, jit: Callable[[Any], Any], leading_zeros: Any = None
) -> Bodies:
    """Return the scalar bodies for words of type U whose floats have `mantissa` fraction bits."""
    width = 32 if mantissa == 23 else 64
    WM = U(mantissa)
    TOP = U(width - 1)
    MAGNITUDE = U((1 << (width - 1)) - 1)
    INF = U(((1 << (width - 1 - mantissa)) - 1) << mantissa)
    FAR = U(mantissa + 1)  # from here on v lies wholly below the quantum
    CLAMP = U(mantissa + 2)
    ROOM = U(width - mantissa - 1)
    ZERO = U(0)
    ONE = U(1)
    ONES = U((1 << width) - 1)
    lead_of = build_lead(U, jit, leading_zeros)

    @jit
    def gap_of(a):  # type: ignore[no-untyped-def]
        """Left shift of the significand: exponent field - 1, and 0 among subnormals."""
        field = U(a >> WM)
        return ZERO if field == ZERO else U(field - ONE)

    @jit
    def top_of(v, gap, g, s):  # type: ignore[no-untyped-def]
        """Index, in v, of the leading bit of the target's binade there."""
        if not s.deep:  # the leading bit of v or, further up, emin's
            lead = U(gap + WM)
            return U((lead if lead > g.lowest else g.lowest) - gap)
        floor = U(g.lowest - gap) if g.lowest > gap else ZERO
        lead = lead_of(v)
        return floor if floor > lead else lead

    @jit
    def increment(drop, mask, lsb, negative, spare, g, s):  # type: ignore[no-untyped-def]
        """What rounding adds to v before the bits under the quantum are cut."""
        if s.stochastic:
            more = U(drop - g.random_bits) if drop > g.random_bits else ZERO
            fewer = U(g.random_bits - drop) if drop < g.random_bits else ZERO
            fewer = fewer if fewer < TOP else TOP
            added = U(U(U(g.spare_max - spare) >> fewer) << more)
            return added if drop != ZERO else ZERO
        if s.directed:
            away = g.away_negative if negative != ZERO else g.away_positive
            away = away if U(lsb & g.odd) == ZERO else ZERO
            return U(mask & away)
        half_down = U(mask >> ONE)
        return U(U(half_down & g.nearest) + U(U(lsb | g.tie_away) & U(g.nearest & mask)))

    @jit
    def lifted(v, depth, q, spare, g, s):  # type: ignore[no-untyped-def]
        """Mask: a number far below the smallest value goes up to it."""
        if not s.stochastic:
            return ONES if q != ZERO else ZERO
        # floor(v * 2**n / 2**depth); far below, n - depth is at most ROOM, the bits above v
        deeper = U(depth + ROOM)
        deeper = U(deeper - g.random_bits) if deeper > g.random_bits else ZERO
        w = U(U(v << ROOM) >> (deeper if deeper < TOP else TOP))
        w = w if deeper <= TOP else ZERO
        return ONES if w > spare else ZERO

    @jit
    def rounded(x, spare, g, s):  # type: ignore[no-untyped-def]
        """Return (gap, drop, rise, q, far, lift).

        q is v, rounded to a multiple of 2**drop. far and lift are masks: the number lies far
        below the smallest value, where q does not count; it becomes that value all the same.
        """
        a = U(x & MAGNITUDE)
        negative = ZERO if s.unsigned else U(x >> TOP)
        gap = gap_of(a)
        v = U(a - U(gap << WM))
        top = top_of(v, gap, g, s)
        depth = U(top - g.mantissa)
        drop = depth if depth < CLAMP else CLAMP
        mask = U(U(ONE << drop) - ONE)
        rise = U(U(top + gap) - g.lowest)
        lsb = U(v >> drop)
        if s.parity:
            lsb = U(lsb + U(rise + g.code_shift))
        lsb = U(lsb & ONE)
        q = U(U(v + increment(drop, mask, lsb, negative, spare, g, s)) & U(~mask))
        if s.directed or s.stochastic:
            far = ONES if depth >= FAR else ZERO
            return gap, drop, rise, q, far, U(far & lifted(v, depth, q, spare, g, s))
        return gap, drop, rise, q, ZERO, ZERO

    @jit
    def settle(r, far, lift, x, g, k, s):  # type: ignore[no-untyped-def]
        """Apply a Cast's rules to a rounded magnitude; k holds the results, as bits or as codes."""
        a = U(x & MAGNITUDE)
        if s.directed or s.stochastic:
            r = U(U(r & U(ONES - far)) | U(k.smallest & lift))
        if s.zeroless:
            r = k.floor if r < k.floor else r
        r = ZERO if r < k.normal else r
        over = k.over_positive
        if s.directed and not s.unsigned:
            over = k.over_negative if U(x >> TOP) != ZERO else over
        r = over if r > k.max else r
        if s.zeroless:
            r = k.zero if a == ZERO else r
        if s.inf_apart:
            r = k.inf if a == INF else r
        if s.nan_apart:
            r = k.nan if a > INF else r
        if s.unsigned:
            refused = a if U(x >> TOP) > g.takes_negative else ZERO
            return k.nan if refused != ZERO else r
        sign = U(U(x >> TOP) << k.sign_shift)
        sign = U(sign & k.zero_sign) if r == ZERO else sign
        sign = U(sign & k.nan_sign) if a > INF else sign
        return U(r | sign)

    @jit
    def round_bits(x, spare, g, k, s):  # type: ignore[no-untyped-def]
        """Round one word to a format; the result is a word."""
        gap, _, _, q, far, lift = rounded(x, spare, g, s)
        r = U(q + U(gap << WM)) if q != ZERO else ZERO
        return settle(r, far, lift, x, g, k, s)

    @jit
    def encode_bits(x, spare, g, k, s):  # type: ignore[no-untyped-def]
        """Round one word to a format; the result is the format's code."""
        _, drop, rise, q, far, lift = rounded(x, spare, g, s)
        r = U(U(rise << g.mantissa) + U(q >> drop))
        if s.zeroless:  # codes start one binade earlier; below the smallest lies nothing
            r = U(r - g.code_shift) if r > ZERO else ZERO
        return settle(r, far, lift, x, g, k, s)

    @jit
    def decode_bits(code, d, narrow):  # type: ignore[no-untyped-def]
        """Return the word of a code of the format.

        narrow, a constant: the format's subnormals are normal in the word and get normalised.
        """
        c = U(code & d.code_mask)
        shifted = U(c + d.code_shift)
        field = U(shifted >> d.mantissa)
        fraction = U(shifted & U(U(ONE << d.mantissa) - ONE))
        hidden = U(ONE << d.mantissa) if field != ZERO else ZERO
        v = U(fraction | hidden)
        lead = d.mantissa
        if narrow:
            lead = lead if field != ZERO else lead_of(v)
        # the value is v << place in units of the word's smallest subnormal
        place = U(U(d.lowest - d.mantissa) + (U(field - ONE) if field != ZERO else ZERO))
        height = U(lead + place)
        fixed = U(v << (place if place < WM else WM))
        gap = U(height - WM) if height > WM else ZERO
        scaled = U(U(gap << WM) + U(v << U(WM - lead)))
        r = scaled if height > WM else fixed
        r = ZERO if v == ZERO else r
        r = INF if c == d.inf_code else r
        r = d.nan if c > d.last_code else r
        r = d.nan if code == d.lone_nan else r
        sign = U(U(U(code >> d.sign_shift) & d.signed) << TOP)
        sign = ZERO if code == d.lone_nan else sign
        return U(r | sign)

    return Bodies(round_bits, encode_bits, decode_bits)
