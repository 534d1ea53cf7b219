"""Casts as records: which are equal, how they are written, what they refuse."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import DETERMINISTIC, ODD, P3109, TABLED, WIDE, every_cast, names

import fpemu
from fpemu.cast import Cast, Negative, Overflow, Rounding, Subnormals, Zero, make_cast
from fpemu.errors import FormatError, InputError, UnknownFormatError
from fpemu.rounding import exact, round_exact

NAMED = [*fpemu.formats.values(), *P3109]


@st.composite
def casts(draw, formats=(*NAMED, *ODD, *WIDE)):
    form = draw(st.sampled_from(formats))
    no_nan = not form.signed and not form.has_nan
    return Cast(
        form,
        draw(st.sampled_from(Rounding)),
        draw(st.sampled_from(Overflow)),
        draw(st.sampled_from(Subnormals)),
        Negative.ABS if no_nan else draw(st.sampled_from(Negative)),
        draw(st.sampled_from(Zero)),
    )


# --- equal functions are equal records -------------------------------------------------------


@pytest.mark.parametrize("name", ["float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn"])
@pytest.mark.parametrize("overflow", Overflow, ids=names(Overflow))
def test_formats_without_inf_and_nan_always_saturate(name, overflow):
    cast = Cast(name, overflow=overflow)
    assert cast.overflow is Overflow.SATURATE
    assert cast == Cast(name)
    assert hash(cast) == hash(Cast(name))


def test_rules_that_cannot_matter_take_their_default():
    assert Cast("fp16", negative="abs", zero="smallest") == Cast("fp16")
    assert Cast("e8m0", subnormals="flush") == Cast("e8m0")
    assert Cast("e8m0", zero="smallest") != Cast("e8m0")
    assert Cast("e8m0", negative="abs") != Cast("e8m0")
    assert Cast("binary8p1se", subnormals="flush") == Cast("binary8p1se")
    assert Cast("binary8p4ue", negative="abs") != Cast("binary8p4ue")
    assert Cast("fp16", subnormals="flush") != Cast("fp16")


SIGNED = [f for f in (*TABLED, *WIDE) if f.signed and f.max_code > 3]


@pytest.mark.parametrize("form", SIGNED, ids=str)
def test_casts_to_a_signed_format_that_differ_as_records_differ_as_functions(form):
    """But for one pair: nothing finite overflows to infinity in toward_zero and to_odd, so
    "ieee" and "saturate_keep_inf" are the same there."""
    m, low, normal = form.mantissa_bits, form.smallest_subnormal, form.smallest_normal
    ties = [normal * (1 + (2 * k + 1) / 2 ** (m + 1)) for k in range(2)]
    others = [normal * 1.2, normal * 1.4, normal * 2.8, low * 0.25, low * 0.5, low * 0.75, low]
    special = [0.0, np.inf, np.nan, 2.0 ** (form.emax + 2), form.max * (1 + 2.0 ** -(m + 3))]
    inputs = [exact(x) for x in ties + others + special]
    inputs += [x._replace(sign=1) for x in inputs]
    functions = {tuple(round_exact(c, x).code for x in inputs) for c in every_cast(form)}
    assert len(functions) == len({_merged(cast) for cast in every_cast(form)})


def _merged(cast: Cast) -> Cast:
    stops = cast.rounding in (Rounding.TOWARD_ZERO, Rounding.TO_ODD)
    same = stops and cast.overflow is Overflow.SATURATE_KEEP_INF
    return cast.replace(overflow="ieee") if same else cast


@pytest.mark.parametrize("name", ["unsigned_no_nan", "zeroless_no_nan"])
def test_an_unsigned_format_without_nan_needs_abs(name):
    form = next(f for f in ODD if f.name == name)
    with pytest.raises(FormatError, match=f"{name}.*give negative='abs'"):
        Cast(form)
    assert Cast(form, negative="abs").negative is Negative.ABS


def test_strings_and_enums_make_the_same_cast():
    a = Cast("fp16", Rounding.UP, Overflow.SATURATE, Subnormals.FLUSH)
    b = Cast("float16", "up", "saturate", "flush")
    assert a == b
    assert hash(a) == hash(b)
    assert a is not b


# --- text and JSON ---------------------------------------------------------------------------


@given(casts(NAMED))
def test_text_round_trips(cast):
    assert Cast.from_str(str(cast)) == cast
    assert make_cast(str(cast)) == cast


@given(casts())
def test_json_and_pickle_round_trip(cast):
    again = Cast.from_json(json.loads(json.dumps(cast.to_json())))
    assert again == cast
    assert hash(again) == hash(cast)
    copy = pickle.loads(pickle.dumps(cast))
    assert copy == cast
    assert hash(copy) == hash(cast)


@given(casts())
def test_replace_changes_one_field(cast):
    for rounding in Rounding:
        other = cast.replace(rounding=rounding.value)
        assert other.rounding is rounding
        assert other.replace(rounding=cast.rounding) == cast


@pytest.mark.parametrize("form", NAMED, ids=str)
def test_text_is_unique_and_leaves_defaults_out(form):
    casts = every_cast(form, Rounding)
    assert len({str(c) for c in casts}) == len(casts)
    assert str(Cast(form)) == form.name
    assert [c for c in casts if str(c) == form.name] == [Cast(form)]


@pytest.mark.parametrize(
    ("cast", "text"),
    [
        (Cast("fp16"), "float16"),
        (Cast("fp16", "up"), "float16:up"),
        (Cast("fp16", "up", "saturate", "flush"),
         "float16:up,overflow=saturate,subnormals=flush"),
        (Cast("e4m3fn", overflow="saturate"), "float8_e4m3fn:overflow=saturate"),
        (Cast("fp4", overflow="ieee"), "float4_e2m1fn"),
        (Cast("e8m0", "toward_zero", negative="abs", zero="smallest"),
         "float8_e8m0fnu:toward_zero,negative=abs,zero=smallest"),
    ],
)  # fmt: skip
def test_text(cast, text):
    assert str(cast) == text
    assert Cast.from_str(text) == cast


def test_text_is_read_with_spaces_and_aliases():
    assert Cast.from_str("fp16: up , overflow = saturate") == Cast("fp16", "up", "saturate")
    assert Cast.from_str("fp16:rounding=up") == Cast("fp16", "up")


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("fp17", UnknownFormatError, "unknown format 'fp17'"),
        ("fp16:upp", FormatError, "unknown rounding 'upp'; did you mean 'up'"),
        ("fp16:overflow=clamp", FormatError, "unknown overflow 'clamp'; .*choose one of"),
        ("fp16:colour=red", FormatError, "unknown rule 'colour'"),
        ("fp16:up,down", FormatError, "rounding is given twice"),
        ("fp16:overflow=ieee,overflow=ieee", FormatError, "overflow is given twice"),
    ],
)
def test_text_that_is_refused(text, error, message):
    with pytest.raises(error, match=message) as caught:
        Cast.from_str(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({}, "'format' is missing"),
        ({"format": "fp16", "colour": 1}, "unknown rule 'colour'"),
        ({"format": {"name": "x"}}, "format facts"),
        ({"format": "fp16", "rounding": "sideways"}, "unknown rounding 'sideways'"),
    ],
)
def test_json_that_is_refused(facts, message):
    with pytest.raises(fpemu.FpemuError, match=message):
        Cast.from_json(facts)


def test_a_format_of_ones_own_travels_in_json_as_its_facts():
    form = ODD[0]
    assert Cast(form).to_json()["format"] == form.to_json()
    assert Cast.from_json(Cast(form).to_json()).format == form
    imposter = fpemu.Format("float16", 4, 3, 7, "top_code", inf=False)
    with pytest.raises(FormatError, match="'float16' is not the known one of that name"):
        Cast(imposter)  # its text would be another cast's
    assert Cast("fp16").to_json()["format"] == "float16"


def test_a_pickled_cast_is_found_in_another_process():
    code = (
        "import pickle, sys, fpemu; c = pickle.loads(sys.stdin.buffer.read());"
        "assert {c: 1}[fpemu.Cast('e4m3fn', 'up')] == 1"
    )
    data = pickle.dumps(Cast("e4m3fn", "up"))
    subprocess.run([sys.executable, "-c", code], input=data, check=True)


# --- making one ------------------------------------------------------------------------------


def test_make_cast_puts_given_rules_in_place_of_its_own():
    own = Cast("fp16", "up", "saturate")
    assert make_cast(own) is own
    assert make_cast(own, rounding="down") == Cast("fp16", "down", "saturate")
    assert make_cast("fp16:up", overflow="saturate") == own
    assert make_cast("fp16:up", rounding="down") == Cast("fp16", "down")
    assert make_cast(fpemu.finfo("fp16"), subnormals="flush") == Cast("fp16", subnormals="flush")
    assert make_cast("e8m0", negative="abs", zero="smallest").zero is Zero.SMALLEST


@pytest.mark.parametrize("to", [["fp16"], {"fp16": 1}])
def test_make_cast_refuses_what_is_no_name(to):
    with pytest.raises(InputError, match="a name or one of fpemu's records"):
        make_cast(to)


@pytest.mark.parametrize("to", [None, 16, np.float16])
def test_make_cast_refuses_other_types(to):
    with pytest.raises(fpemu.FpemuError, match="must be a name"):
        make_cast(to)


def test_wrong_rules_are_refused():
    with pytest.raises(FormatError, match="unknown rounding 'nearest'; did you mean 'nearest_"):
        Cast("fp16", "nearest")
    with pytest.raises(FormatError, match="unknown subnormals True"):
        Cast("fp16", subnormals=True)
    with pytest.raises(FormatError, match="no field 'colour'"):
        Cast("fp16").replace(colour=1)
    with pytest.raises(InputError):
        make_cast("fp16", rounding=["up"])


def test_a_cast_is_frozen():
    with pytest.raises(AttributeError):
        Cast("fp16").rounding = Rounding.UP


@pytest.mark.parametrize("rounding", DETERMINISTIC, ids=names(DETERMINISTIC))
def test_a_cast_is_callable(rounding):
    x = np.float32([0.1, -0.1, 70000.0])
    got = Cast("fp16", rounding)(x)
    assert np.array_equal(got, fpemu.round(x, "fp16", rounding=rounding))


def test_a_cast_takes_the_options_of_round():
    x = np.full(100, 0.1, np.float32)
    cast = Cast("fp16", "stochastic")
    out = np.empty_like(x)
    assert cast(x, seed=3, offset=7, out=out) is out
    assert np.array_equal(out, fpemu.round(x, "fp16", rounding="stochastic", seed=3, offset=7))
