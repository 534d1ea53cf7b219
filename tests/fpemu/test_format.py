"""The table of formats, P3109, names, and what a Format refuses."""

from __future__ import annotations

import itertools
import json
import pickle
import subprocess
import sys

import gfloat
import ml_dtypes
import numpy as np
import pytest
import second_algorithm
from gfloat.formats import format_info_p3109
from gfloat.types import Domain, Signedness
from support import ML_DTYPES, ODD, P3109, TABLED, WIDE, assert_same_bits, p3109_formats, widened

import fpemu
from fpemu.catalog import ALIASES, FORMATS
from fpemu.errors import FormatError, UnknownFormatError
from fpemu.rounding import value_of

FINFO = [name for name in fpemu.formats if name != "tf32"]


def dtype_of(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name, name))


def exact_values(form: fpemu.Format) -> np.ndarray:
    return np.array([float(value_of(form, code)) for code in range(1 << form.bits)])


# --- the table -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FINFO)
def test_finfo_is_that_of_ml_dtypes_and_numpy(name):
    ours, theirs = fpemu.finfo(name), ml_dtypes.finfo(dtype_of(name))
    for field in ("bits", "eps", "max", "min", "smallest_normal", "smallest_subnormal", "tiny"):
        assert float(getattr(ours, field)) == float(getattr(theirs, field)), field
    assert (ours.mantissa_bits, ours.exponent_bits) == (theirs.nmant, theirs.nexp)
    assert (ours.emin, ours.emax) == (theirs.minexp, theirs.maxexp - 1)


@pytest.mark.parametrize("name", ["float16", *ML_DTYPES])
def test_every_code_has_the_value_that_ml_dtypes_and_numpy_give_it(name):
    form = fpemu.finfo(name)
    codes = np.arange(1 << form.bits, dtype=np.uint16 if form.bits > 8 else np.uint8)
    want = widened(codes.view(dtype_of(name)))
    assert_same_bits(exact_values(form), want, codes, name)


@pytest.mark.parametrize(("name", "bits"), [("bfloat16", 16), ("tf32", 19)])
def test_codes_of_bfloat16_and_tf32_are_the_top_bits_of_float32(name, bits):
    codes = np.arange(1 << bits, dtype=np.uint32)
    want = widened((codes << (32 - bits)).view(np.float32))
    assert_same_bits(second_algorithm.table(fpemu.finfo(name)), want, codes, name)


def test_codes_of_float32_are_its_bits():
    form = fpemu.finfo("float32")
    for bits in (0, 1, 0x7FFFFF, 0x800000, 0x3F800001, 0x7F7FFFFF, 0x7F800000, 0xFF800000):
        want = float(np.array(bits, np.uint32).view(np.float32))
        assert float(value_of(form, bits)) == want
    assert value_of(form, 0x7FC00000).is_nan


@pytest.mark.parametrize("form", [f for f in TABLED if f.bits <= 16], ids=str)
def test_the_second_algorithm_reads_codes_as_the_definition_does(form):
    codes = np.arange(1 << form.bits)
    assert_same_bits(second_algorithm.table(form), exact_values(form), codes, form)


@pytest.mark.parametrize(
    ("name", "facts"),
    {
        "float16": (65504.0, 0x7BFF, 0x7C00, 0x7E00, True),
        "bfloat16": (255 * 2.0**120, 0x7F7F, 0x7F80, 0x7FC0, True),
        "tf32": (2047 * 2.0**117, 0x3FBFF, 0x3FC00, 0x3FE00, True),
        "float8_e4m3fn": (448.0, 0x7E, None, 0x7F, True),
        "float8_e5m2": (57344.0, 0x7B, 0x7C, 0x7E, True),
        "float8_e4m3": (240.0, 0x77, 0x78, 0x7C, True),
        "float8_e3m4": (15.5, 0x6F, 0x70, 0x78, True),
        "float8_e4m3fnuz": (240.0, 0x7F, None, 0x80, False),
        "float8_e5m2fnuz": (57344.0, 0x7F, None, 0x80, False),
        "float8_e4m3b11fnuz": (30.0, 0x7F, None, 0x80, False),
        "float6_e2m3fn": (7.5, 0x1F, None, None, True),
        "float6_e3m2fn": (28.0, 0x1F, None, None, True),
        "float4_e2m1fn": (6.0, 0x7, None, None, True),
        "float8_e8m0fnu": (2.0**127, 0xFE, None, 0xFF, False),
        "binary8p4se": (224.0, 0x7E, 0x7F, 0x80, False),
        "binary8p4sf": (240.0, 0x7F, None, 0x80, False),
        "binary8p4ue": (53248.0, 0xFD, 0xFE, 0xFF, False),
    }.items(),
)
def test_special_codes(name, facts):
    form = fpemu.finfo(name)
    assert (form.max, form.max_code, form.inf_code, form.nan_code, form.minus_zero) == facts


@pytest.mark.parametrize("form", [*TABLED, *WIDE], ids=str)
def test_derived_facts_agree_with_each_other(form):
    assert form.bits == form.magnitude_bits + form.signed
    assert form.precision == form.mantissa_bits + 1
    assert form.eps == 2.0**-form.mantissa_bits
    assert form.min_code <= form.min_normal_code <= form.max_code
    assert float(value_of(form, form.max_code)) == form.max
    assert float(value_of(form, form.min_normal_code)) == form.smallest_normal
    assert float(value_of(form, form.min_code)) == form.smallest_subnormal > 0
    assert 2.0**form.emax <= form.max < 2.0 ** (form.emax + 1)
    assert form.smallest_normal in (2.0**form.emin, form.smallest_subnormal)
    if form.inf_code is not None:
        assert value_of(form, form.inf_code).is_inf
    if form.nan_code is not None:
        assert value_of(form, form.nan_code).is_nan
    assert form.has_nan == (form.nan_code is not None)
    assert form.min == (-form.max if form.signed else 0.0 if form.zero else form.smallest_normal)
    for value in (form.max, form.smallest_subnormal):
        assert float(np.float32(value)) == value


# --- P3109 -----------------------------------------------------------------------------------


@pytest.mark.parametrize("K", range(3, 9))
def test_p3109_has_the_values_of_gfloat(K):
    """gfloat 0.5 follows the same draft; it also takes a signed format of precision K (no
    exponent bits), which the draft leaves out and `p3109` refuses."""
    tried = 0
    for P, signed, extended in itertools.product(range(1, K + 1), (True, False), (True, False)):
        theirs = format_info_p3109(
            K,
            P,
            Signedness.Signed if signed else Signedness.Unsigned,
            Domain.Extended if extended else Domain.Finite,
        )
        if signed and P == K:
            with pytest.raises(FormatError, match=f"the precision must be 1 to {K - 1}"):
                fpemu.p3109(K, P, signed, extended)
            continue
        ours = fpemu.p3109(K, P, signed, extended)
        want = np.array([gfloat.decode_float(theirs, code).fval for code in range(1 << K)])
        assert_same_bits(exact_values(ours), want, np.arange(1 << K), ours)
        tried += 1
    assert tried == 4 * K - 2


@pytest.mark.parametrize("form", p3109_formats(range(3, 16)), ids=str)
def test_p3109_names_find_their_format(form):
    assert fpemu.finfo(form.name) == form
    assert fpemu.finfo(form.name.upper()) == form


def test_p3109_name_without_letters_is_signed_and_extended():
    assert fpemu.finfo("binary8p3") == fpemu.p3109(8, 3)
    assert fpemu.finfo("Binary8p3f").name == "binary8p3sf"
    assert fpemu.finfo("Binary8p3u").name == "binary8p3ue"


def test_p3109_reaches_every_width_to_15_and_refuses_what_leaves_float32():
    forms = p3109_formats(range(3, 16))
    assert {f.bits for f in forms} == set(range(3, 16))
    assert all(f.exponent_bits <= 8 for f in forms)
    with pytest.raises(FormatError, match=r"binary15p3se.*exponent_bits=12.*float32"):
        fpemu.p3109(15, 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((2, 1), "K=2"),
        ((16, 8), "K=16"),
        ((8, 0), "P=0"),
        ((8, 8), "P=8"),
        ((8, 9, False), "P=9"),
        ((8.0, 3), "K=8.0"),
        ((8, "3"), "P='3'"),
        ((True, 1), "K=True"),
    ],
)
def test_p3109_refuses(arguments, message):
    with pytest.raises(FormatError, match=message):
        fpemu.p3109(*arguments)


# --- names -----------------------------------------------------------------------------------


def test_the_table_is_read_only_and_named_by_its_keys():
    assert all(name == form.name == name.lower() for name, form in FORMATS.items())
    with pytest.raises(TypeError):
        FORMATS["mine"] = FORMATS["float16"]  # type: ignore[index]
    assert fpemu.formats is FORMATS


@pytest.mark.parametrize("alias", ALIASES)
def test_aliases(alias):
    assert alias not in FORMATS
    for spelling in (alias, alias.upper(), f" {alias} "):
        assert fpemu.finfo(spelling) is FORMATS[ALIASES[alias]]


@pytest.mark.parametrize(
    ("alias", "name"),
    [("fp16", "float16"), ("half", "float16"), ("bf16", "bfloat16"), ("e4m3fn", "float8_e4m3fn"),
     ("e5m2", "float8_e5m2"), ("fp4", "float4_e2m1fn"), ("e8m0", "float8_e8m0fnu")],
)  # fmt: skip
def test_what_people_type(alias, name):
    assert fpemu.finfo(alias).name == name


@pytest.mark.parametrize("name", ["e4m3", "fp8", "float8", "fp6", "float6", "fp8_e4m3", "E4M3"])
def test_ambiguous_names_are_refused_with_the_choices(name):
    with pytest.raises(UnknownFormatError) as caught:
        fpemu.finfo(name)
    message = str(caught.value)
    assert "ambiguous" in message
    assert repr(name) in message
    choices = [choice.strip(" '") for choice in message.partition("say ")[2].split(",")]
    assert len(choices) >= 2
    assert all(choice in FORMATS for choice in choices)


@pytest.mark.parametrize(
    ("name", "hint"),
    [("e4m4", "did you mean 'e"), ("flaot16", "did you mean 'float16'?"), ("float8_e4m3f", "fn'?")],
)
def test_unknown_names_name_the_closest(name, hint):
    with pytest.raises(UnknownFormatError) as caught:
        fpemu.finfo(name)
    message = str(caught.value)
    assert message.startswith(f"unknown format {name!r}; ")
    assert hint in message
    assert "known: float32, float16" in message
    assert "\n" not in message


@pytest.mark.parametrize("name", ["", "qqq", "binary99p1", "float16 x"])
def test_unknown_names(name):
    with pytest.raises(fpemu.FpemuError):
        fpemu.finfo(name)


@pytest.mark.parametrize("name", [None, 16, np.float16, ["float16"]])
def test_what_is_no_name_is_refused(name):
    with pytest.raises(UnknownFormatError, match=r"must be a name or a fpemu\.Format"):
        fpemu.finfo(name)


def test_a_format_is_found_as_itself():
    assert fpemu.finfo(ODD[0]) is ODD[0]


# --- what a Format refuses -------------------------------------------------------------------

GOOD = {"name": "mine", "exponent_bits": 4, "mantissa_bits": 3, "bias": 7, "nan": "top_code",
        "inf": False}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"exponent_bits": 0}, "exponent_bits=0 must be 1 to 8"),
        ({"exponent_bits": 9}, "exponent_bits=9 must be 1 to 8"),
        ({"exponent_bits": 4.0}, "exponent_bits=4.0: must be an int"),
        ({"exponent_bits": True}, "exponent_bits=True: must be an int"),
        ({"mantissa_bits": -1}, "mantissa_bits=-1 must be 0 to 23"),
        ({"mantissa_bits": 24}, "mantissa_bits=24 must be 0 to 23"),
        ({"bias": "7"}, "bias='7': must be an int"),
        ({"nan": "ieee"}, "nan='ieee': must be one of"),
        ({"inf": 1}, "inf=1: must be True or False"),
        ({"signed": None}, "signed=None: must be True or False"),
        ({"zero": 0}, "zero=0: must be True or False"),
        ({"name": ""}, "name='': must be"),
        ({"name": "a b"}, "name='a b': must be"),
        ({"name": 3}, "name=3: must be"),
        ({"nan": "none", "inf": True}, "an infinity needs a NaN"),
        ({"nan": "top_binade"}, "top_binade"),
        ({"nan": "top_binade", "inf": True, "mantissa_bits": 0}, "top_binade"),
        ({"nan": "minus_zero", "signed": False}, "minus_zero"),
        ({"zero": False}, "zero=False"),
        ({"exponent_bits": 1, "mantissa_bits": 0}, "no finite normal value"),
        ({"bias": -200}, "raise the bias by"),
        ({"bias": 148}, "smallest value is below 2\\*\\*-149"),
    ],
)
def test_format_refuses(change, message):
    with pytest.raises(FormatError, match=message) as caught:
        fpemu.Format(**GOOD | change)
    assert "\n" not in str(caught.value)


def test_the_bias_that_the_error_names_is_the_first_that_works():
    with pytest.raises(FormatError) as caught:
        fpemu.Format(**GOOD | {"bias": -200})
    raised = -200 + int(str(caught.value).rpartition(" by ")[2])
    assert fpemu.Format(**GOOD | {"bias": raised}).emax == 127
    with pytest.raises(FormatError):
        fpemu.Format(**GOOD | {"bias": raised - 1})
    assert fpemu.Format(**GOOD | {"bias": 147}).smallest_subnormal == 2.0**-149


# --- records ---------------------------------------------------------------------------------

ALL = [*fpemu.formats.values(), *P3109, *ODD, *WIDE]


@pytest.mark.parametrize("form", ALL, ids=str)
def test_json_and_pickle_round_trip(form):
    again = fpemu.Format.from_json(json.loads(json.dumps(form.to_json())))
    assert again == form
    assert hash(again) == hash(form)
    _ = form.max, hash(form)  # cached values must not travel
    copy = pickle.loads(pickle.dumps(form))
    assert copy == form
    assert hash(copy) == hash(form)


def test_pickles_keep_working_in_a_process_with_other_string_hashes():
    form = fpemu.finfo("e4m3fn")
    hash(form)
    code = (
        "import pickle, sys, fpemu; f = pickle.loads(sys.stdin.buffer.read());"
        "assert {f: 1}[fpemu.finfo('e4m3fn')] == 1"
    )
    subprocess.run([sys.executable, "-c", code], input=pickle.dumps(form), check=True)


def test_equality_counts_every_fact():
    form = fpemu.Format(**GOOD)
    assert form == fpemu.Format(**GOOD)
    assert form != fpemu.finfo("float8_e4m3fn")  # the name is one
    for change in ({"name": "other"}, {"bias": 8}, {"nan": "none"}, {"mantissa_bits": 2}):
        assert form != fpemu.Format(**GOOD | change)
    assert len({form, fpemu.Format(**GOOD)}) == 1
    assert fpemu.Format(**GOOD | {"nan": fpemu.NaN.TOP_CODE}) == form


def test_a_format_is_frozen():
    with pytest.raises(AttributeError):
        fpemu.Format(**GOOD).bias = 3


@pytest.mark.parametrize("facts", [{}, {"name": "x"}, GOOD | {"colour": "red"}])
def test_from_json_refuses(facts):
    with pytest.raises(FormatError, match="format facts"):
        fpemu.Format.from_json(facts)
