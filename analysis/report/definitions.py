"""The definitions that every report prints: tools disagree about these words."""

from __future__ import annotations

from dataclasses import dataclass

from fpemu.analysis.by_recipe import ByRecipe, Target
from fpemu.analysis.parts import rule_of_recipes
from fpemu.analysis.report.numbers import number, power, share
from fpemu.cast import Cast, Overflow, Rounding, Subnormals
from fpemu.format import Format
from fpemu.scaling.recipe import Recipe

__all__ = ["Definition", "definitions", "describe_cast", "describe_format", "describe_recipe"]


@dataclass(frozen=True, slots=True)
class Definition:
    """One word as this report uses it."""

    term: str
    meaning: str

    def to_json(self) -> dict[str, str]:
        return {"term": self.term, "meaning": self.meaning}


_ORIGIN = {
    "float32": "IEEE 754 binary32",
    "float16": "IEEE 754 binary16",
    "bfloat16": "Google's bfloat16, IEEE-like",
    "tf32": "NVIDIA's TF32, IEEE-like, 19 bits",
    "float8_e4m3fn": "OCP FP8 E4M3",
    "float8_e5m2": "OCP FP8 E5M2",
    "float8_e4m3": "IEEE-like E4M3, not OCP's",
    "float8_e3m4": "IEEE-like E3M4",
    "float8_e4m3fnuz": "FNUZ E4M3, not OCP's",
    "float8_e5m2fnuz": "FNUZ E5M2, not OCP's",
    "float8_e4m3b11fnuz": "FNUZ E4M3 with bias 11",
    "float6_e2m3fn": "OCP MX FP6 E2M3, element only, no block scale",
    "float6_e3m2fn": "OCP MX FP6 E3M2, element only, no block scale",
    "float4_e2m1fn": "OCP MX FP4 E2M1, element only, no block scale",
    "float8_e8m0fnu": "OCP MX scale E8M0",
}

_ROUNDING = {
    Rounding.NEAREST_EVEN: "to the nearest value, ties to the even code",
    Rounding.NEAREST_AWAY: "to the nearest value, ties away from zero",
    Rounding.TOWARD_ZERO: "toward zero (truncation)",
    Rounding.UP: "toward +infinity",
    Rounding.DOWN: "toward -infinity",
    Rounding.TO_ODD: "to the neighbour with the odd code unless exact",
    Rounding.STOCHASTIC: "stochastic",
}


def describe_format(form: Format) -> str:
    """Return one line that leaves no doubt which format is meant.

    >>> import fpemu
    >>> from fpemu.analysis.report.definitions import describe_format
    >>> describe_format(fpemu.finfo("e4m3fn")).split(";")[0]
    'OCP FP8 E4M3: 8 bits (4 exponent, 3 mantissa, bias 7)'
    """
    origin = _ORIGIN.get(form.name, "IEEE P3109 or user-defined")
    small = (
        f"smallest normal {power(form.smallest_normal)}, "
        f"smallest value {power(form.smallest_subnormal)}"
    )
    specials = f"{'has' if form.inf else 'no'} infinity, {'has' if form.has_nan else 'no'} NaN"
    return (
        f"{origin}: {form.bits} bits ({form.exponent_bits} exponent, {form.mantissa_bits} mantissa,"
        f" bias {form.bias}); largest {number(form.max)}, {small}; {specials}"
    )


def describe_cast(cast: Cast) -> str:
    """Return the rounding, overflow and subnormal rules in words.

    >>> import fpemu
    >>> from fpemu.analysis.report.definitions import describe_cast
    >>> describe_cast(fpemu.Cast("e4m3fn")).split("; ")[1]
    'finite values beyond the largest become NaN'
    """
    form = cast.format
    beyond = "infinity" if form.inf else "NaN"
    if cast.overflow is not Overflow.IEEE:
        becomes = "the largest finite value (saturation)"
    elif cast.rounding in (Rounding.TOWARD_ZERO, Rounding.TO_ODD):
        becomes = "the largest finite value (this rounding never passes it)"
    elif cast.rounding in (Rounding.UP, Rounding.DOWN):
        becomes = f"{beyond} or the largest finite value, as the direction of rounding has it"
    else:
        becomes = beyond
    small = {
        Subnormals.KEEP: "subnormal results are kept",
        Subnormals.FLUSH: "subnormal results become zero",
    }[cast.subnormals]
    rounding = _ROUNDING[cast.rounding]
    return f"rounded {rounding}; finite values beyond the largest become {becomes}; {small}"


def describe_recipe(recipe: Recipe) -> str:
    """Return one line that says what shares a scale, and what each number becomes.

    >>> from fpemu.analysis.report.definitions import describe_recipe
    >>> from fpemu.scaling import find_recipe
    >>> describe_recipe(find_recipe("mxfp8")).split(";")[0]
    'scales of blocks 1x32 (1x32 exponent float8_e4m3fn:overflow=saturate)'
    """
    source = f"; as in {recipe.note}" if recipe.note else ""
    return (
        f"scales of blocks {recipe.block} ({recipe}){source}; elements of {recipe.element.bits} "
        f"bits, the largest {number(recipe.element.max)}"
    )


def _judged_in(to: Target) -> dict[str, str]:
    """What is judged, defined."""
    if isinstance(to, ByRecipe):
        return {
            f"recipe {to}": describe_recipe(to.recipe) + ".",
            "recipes": "Counted on the values as the run was recorded. A value that comes out 0 "
            "counts as underflow, one beyond the largest element at its scale as saturated, one "
            "that comes out NaN or infinite as overflow. The last alone makes a tensor unsafe; the "
            "error of the others is in the measured SQNR.",
        }
    form = to.format
    return {
        f"format {form.name}": describe_format(form) + ".",
        f"cast {to}": describe_cast(to) + ".",
    }


def _smallest(to: Target) -> str:
    if isinstance(to, ByRecipe):
        return "that of the element times the scale"
    return f"{power(to.format.smallest_normal)} here"


def definitions(cast: Target, tolerance: float) -> tuple[Definition, ...]:
    """Return every word of a report about `cast`, defined."""
    words = {
        **_judged_in(cast),
        "values counted": "The values as they were recorded, before this cast rounds them; "
        "gradients without the loss scale that they were recorded times, step by step. What a run "
        "that was itself rounded had lost before the recording is not in them.",
        "skipped": "NaN and infinite gradients at a step that a loss scaler skipped, because it "
        "saw them. That is the scaler at work: they are counted apart and make no tensor unsafe. "
        "NaN and infinity in anything else, or at any other step, do.",
        "underflow": "A non-zero value that the cast makes zero. Zeros in the recorded values, +0 "
        "and -0, are counted apart (zero %) and are never an underflow.",
        "subnormal": f"A non-zero result below the smallest normal, {_smallest(cast)}: it is kept "
        "with fewer significant bits. Not counted as lost.",
        "overflow": "A finite value that the cast makes infinity or NaN. Values that are infinite "
        "or NaN as recorded are counted apart.",
        "saturated": "A finite value beyond the largest one, clamped to it.",
        "latent": "A value that does not overflow or saturate, but would if it were twice as "
        "large: within one binade of the format's end.",
        "lost": "Underflow, overflow and saturated values together (and, in an unsigned format, "
        "negative ones), in percent of the finite non-zero values. Rounding error is not in it.",
        "zero %": "Zeros in percent of all values. All other percentages are of the finite "
        "non-zero values.",
        "safe": f"No value comes out NaN or infinite, and each tensor keeps {rule_of_recipes()}, "
        "as measured over all recorded steps together."
        if isinstance(cast, ByRecipe)
        else f"No value overflows, and at most {share(100 * tolerance)} of the finite non-zero "
        "values of each tensor are lost, over all recorded steps together. It speaks of range "
        "only, not of the rounding error within it, and of the recorded steps only.",
        "judged": "The verdict is about what mixed-precision training casts: activations, weights "
        "and gradients. It keeps optimizer states and updates in float32; they are listed with "
        "what the cast would do to them, and not judged unless asked for.",
        "scale": "A power of two that multiplies the values before the cast; exact. A loss scale "
        "multiplies the loss, and so every gradient; it reaches no other kind of tensor. "
        "A scale of its own is stored beside a tensor, as FP8 recipes do.",
        "safe scales": "The unbroken run of scales among those tried at which every tensor is "
        "safe: the run that holds 1, else the widest. 'or less', 'or more': the run reaches the "
        "last scale tried. The scale advised is 1 if it is safe, else the middle of the run. Loss "
        "scales need not be safe for the loss and other scalars, which stay float32.",
        "SQNR, cosine": "Signal to quantization noise, 10 log10 of the values' squares over the "
        "errors' squares; and the cosine of the angle between the values and the rounded ones. "
        "Expected from the counts, as if values were spread evenly between the limits of the "
        "formats: within about a decibel, where nothing is clamped. -∞ dB: a value overflows; no "
        "cosine is given then, nor where values are clamped.",
        "damage": "What a format would do to a layer, from 0 to 1: the larger of the share of its "
        "values lost (in a recipe, rounded to 0) and of the errors' squares in the values' "
        "squares; 1 if any value overflows.",
        "loss scalers": "Each is replayed on the recorded gradients: its overflows, the steps it "
        "would have skipped, and what is lost to underflow, to overflow and to skipped steps. With "
        "another scaler than the one that ran, the gradients would have been others: an estimate.",
        "updates lost": "Of the updates that are not 0, those for which round(w + dw) is w, the "
        "weight being held in the format named. Counted on the values where the run did that; "
        "advice estimates it from the histograms of others, and says so.",
        "blocks": "Values that share a scale. Clipped: blocks with a value beyond the format's "
        "largest one, at the scale that their largest value's exponent gives, or in the recipe "
        "that was counted. Crest: largest magnitude over rms, of the median block.",
        "range": "Dynamic range: log2 of the largest over the smallest non-zero magnitude, in "
        "binades (bits).",
        "headroom": "To max: log2(largest value of the format / largest magnitude). To normal: "
        "log2(smallest non-zero magnitude / smallest normal of the format). Negative: outside by "
        "that many binades.",
        "mean, std, rms, kurtosis": "Over finite values, zeros included. Kurtosis is the fourth "
        "central moment over the squared variance: 3 for a normal distribution.",
        "events": "Per tensor and event, the first step. NaN, infinite and overflowing values "
        "count from the first one; underflow and saturation, of formats, once a step loses more "
        f"than {share(100 * tolerance)}. Within a step, in the order of recording: the first is "
        "the cause to look at.",
    }
    return tuple(Definition(term, meaning) for term, meaning in words.items())
