"""Text: a policy's facts as lines that people write and read, both ways.

    policy: mine
    compute: float16
    lower: linear matmul          names of operations, under the rule that they have
    float32: exp log
        softmax                   a line that is indented goes on from the one before
    loss_scale: dynamic           # a comment
    override: to=float8_e4m3fn module=decoder.* kind=weight steps=100..999
    override: to='1x32 exponent float4_e2m1fn' module=head

Clauses may also stand on one line, separated by ';'. Facts are the dict of `Policy.to_json`, with
casts as text; what the values mean is checked where a Policy is made of them.
"""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from fpemu.errors import InputError, did_you_mean
from fpemu.policies.rule import Rule

__all__ = ["OVERRIDE_KEYS", "from_text", "is_clause", "to_text", "without_comments"]

#: Keys of an override's words.
OVERRIDE_KEYS = ("to", "operation", "module", "kind", "steps")

_LISTS = tuple(rule.value for rule in Rule)
_PLAIN = ("compute", "result", "gradient", "products", "otherwise", "parameters", "master", "state",
          "inputs", "outputs", "loss_scale")  # fmt: skip
_KEYS = ("policy", *_PLAIN, "keep_modules", *_LISTS, "override")
_STEPS = re.compile(r"(\d+)?(\.\.)?(\d+)?", re.ASCII)


def is_clause(text: str) -> bool:
    """Whether text is a 'key: value' and not the name of a policy, which may hold a colon too."""
    return text.partition(":")[0].strip() in _KEYS and ":" in text


def without_comments(text: str) -> str:
    """Return text without what follows '#' on each line."""
    return re.sub(r"#[^\n]*", "", text)


# --- facts to text -----------------------------------------------------------------------------


def to_text(facts: Mapping[str, Any]) -> str:
    """Return a policy's facts as lines; what is not given is left out."""
    lines = [f"policy: {facts['name']}"]
    lines += [f"{key}: {facts[key]}" for key in _PLAIN if facts.get(key) is not None]
    if facts["keep_modules"]:
        lines.append(f"keep_modules: {' '.join(facts['keep_modules'])}")
    lines += [_wrapped(rule, names) for rule, names in facts["operations"].items()]
    lines += [f"override: {_words(override)}" for override in facts["overrides"]]
    return "\n".join(lines)


def _wrapped(rule: str, names: list[str]) -> str:
    return textwrap.fill(
        f"{rule}: {' '.join(names)}", width=96, subsequent_indent="    ",
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def _words(override: Mapping[str, Any]) -> str:
    words = [
        f"{key}={_word(override[key])}" for key in OVERRIDE_KEYS if override.get(key) is not None
    ]
    first, last = override.get("first_step", 0), override.get("last_step")
    if first or last is not None:
        words.append(f"steps={first}..{'' if last is None else last}")
    return " ".join(words)


def _word(value: str) -> str:
    """A value as one word: in quotes where it holds white space, or what quotes are made of."""
    return shlex.quote(value) if re.search(r"[\s'\"\\]", value) else value


# --- text to facts -----------------------------------------------------------------------------


def from_text(text: str) -> dict[str, Any]:
    """Return the facts that a text gives; a key that it does not give is absent."""
    facts: dict[str, Any] = {}
    for key, value in _clauses(text):
        if key in _LISTS:
            _add(facts.setdefault("operations", {}), key, value.split())
        elif key == "override":
            facts.setdefault("overrides", []).append(_read_override(value))
        elif key in facts or (key == "policy" and "name" in facts):
            raise InputError(f"policy text: {key} is given twice; keep one")
        else:
            facts["name" if key == "policy" else key] = _read(key, value)
    return facts


def _clauses(text: str) -> Iterator[tuple[str, str]]:
    joined = re.sub(r"\n[ \t]+(?=\S)", " ", without_comments(text))
    for clause in filter(None, (part.strip() for part in re.split(r"[;\n]", joined))):
        key, colon, value = clause.partition(":")
        if not colon or key.strip() not in _KEYS:
            hint = did_you_mean(key.strip()[:64], _KEYS)
            raise InputError(
                f"policy text {clause[:80]!r}: a clause is 'key: value'; {hint}"
                f"keys: {', '.join(_KEYS)}"
            )
        yield key.strip(), value.strip()


def _add(lists: dict[str, list[str]], rule: str, names: list[str]) -> None:
    for name in names:
        if other := next((r for r, known in lists.items() if name in known), None):
            raise InputError(
                f"policy text: operation {name!r} is in two lists, {other} and {rule}: keep one"
            )
        lists.setdefault(rule, []).append(name)


def _read(key: str, value: str) -> Any:
    if not value:
        raise InputError(f"policy text '{key}:': the value is missing")
    if key == "keep_modules":
        return value.split()
    if key == "loss_scale":
        try:
            return float(value)
        except ValueError:
            return value
    return value


def _read_override(text: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for word in _split(text):
        key, equals, value = word.partition("=")
        if not equals or key not in OVERRIDE_KEYS or key in found:
            hint = did_you_mean(key[:64], OVERRIDE_KEYS)
            raise InputError(
                f"policy text 'override: {text[:80]}': {word[:80]!r} is not one new key=value; "
                f"{hint}keys: {', '.join(OVERRIDE_KEYS)}"
            )
        found[key] = value
    return {**{k: v for k, v in found.items() if k != "steps"}, **_read_steps(found.get("steps"))}


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as wrong:  # a quote that is not closed
        raise InputError(f"policy text 'override: {text[:80]}': {str(wrong).lower()}") from None


def _read_steps(text: str | None) -> dict[str, int]:
    """'5', '5..', '..9' or '5..9'."""
    if text is None:
        return {}
    found = _STEPS.fullmatch(text)
    if found is None or not text or text == "..":
        raise InputError(f"policy text 'steps={text[:80]}': write 5, 5.., ..9 or 5..9")
    first, dots, last = found.groups()
    steps = {"first_step": int(first or 0)}
    if last or not dots:
        steps["last_step"] = int(last or first)
    return steps
