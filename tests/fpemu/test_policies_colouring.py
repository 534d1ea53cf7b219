"""TensorFlow's colouring against a naive fixpoint, and against what TensorFlow itself painted."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpemu.errors import InputError
from fpemu.policies.colouring import Border, Colour, Node, borders, colour, denied
from fpemu.policies.tensorflow_lists import BFLOAT16, FLOAT16, OperationLists

#: An operation of each list, and one of none.
OF = {"allow": "MatMul", "infer": "Add", "deny": "Exp", "clear": "Relu", "none": "Cos"}
LISTS = OperationLists(*(frozenset([OF[name]]) for name in ("allow", "infer", "deny", "clear")))


def chain(*kinds: str) -> list[Node]:
    names = [f"n{i}" for i in range(len(kinds))]
    return [Node(name, OF[kind], tuple(names[max(i - 1, 0) : i]))
            for i, (name, kind) in enumerate(zip(names, kinds, strict=True))]  # fmt: skip


def painted(nodes: list[Node], **options: bool) -> list[str]:
    return [found.value for found in colour(nodes, LISTS, **options).values()]


# --- cases one can see through -------------------------------------------------------------------


def test_denial_ends_at_the_last_inferred_operation():
    """The example in grappler's source, of this step alone."""
    graph = chain("deny", "infer", "clear", "infer", "clear", "allow", "infer")
    assert denied(graph, LISTS) == {"n0", "n1", "n2", "n3"}
    assert painted(graph, follow=False) == ["deny"] * 4 + ["allow", "allow", "infer"]
    assert painted(graph) == ["deny"] * 4 + ["allow", "allow", "allow"]


CASES = [
    ("allow infer clear allow", "allow allow allow allow"),
    ("infer allow", "infer allow"),
    ("clear clear allow clear", "allow allow allow allow"),
    ("clear infer allow", "clear infer allow"),
    ("allow deny allow", "allow deny allow"),
    ("allow deny infer allow", "allow deny deny allow"),
    ("deny clear allow", "deny allow allow"),
    ("allow none infer", "allow unlisted infer"),
    ("infer clear none", "infer clear unlisted"),
    ("allow infer infer clear", "allow allow allow allow"),
]


@pytest.mark.parametrize(("kinds", "want"), CASES)
def test_chains(kinds, want):
    assert painted(chain(*kinds.split())) == want.split()


def test_what_is_not_float32_is_not_lowered_but_denial_passes_through():
    blocked = [Node("a", "MatMul"), Node("b", "Add", ("a",), float32=False),
               Node("c", "MatMul", ("b",)), Node("d", "MatMul", float32=False)]  # fmt: skip
    assert painted(blocked) == ["allow", "infer", "allow", "unlisted"]
    through = [Node("a", "Exp"), Node("b", "Add", ("a",), float32=False), Node("c", "Add", ("b",))]
    assert painted(through) == ["deny", "deny", "deny"]


def test_an_inferred_operation_between_denied_and_allowed_ones_is_denied():
    graph = [Node("a", "MatMul"), Node("e", "Exp"), Node("b", "Add", ("a", "e")),
             Node("c", "MatMul", ("b",))]  # fmt: skip
    assert painted(graph) == ["allow", "deny", "deny", "allow"]
    assert borders(graph, colour(graph, LISTS)) == [
        Border("a", "b", lowers=False), Border("b", "c", lowers=True),
    ]  # fmt: skip


def test_refusals():
    with pytest.raises(InputError, match="two nodes are named 'a'"):
        colour([Node("a", "Add"), Node("a", "Mul")], LISTS)
    with pytest.raises(InputError, match="reads 'ab', which is not in it; did you mean 'abc'"):
        colour([Node("abc", "Add"), Node("b", "Add", ("ab",))], LISTS)
    with pytest.raises(InputError, match="must be a tuple of names"):
        Node("b", "Add", "abc")
    with pytest.raises(InputError, match="operation 'Add' is in two lists"):
        OperationLists(frozenset(["Add"]), frozenset(["Add"]), frozenset(), frozenset())


def test_no_list_of_tensorflow_names_another_list_s_operation_and_bfloat16_infers_more():
    assert BFLOAT16.infer - FLOAT16.infer == {"Mean", "Sum", "Rsqrt", "Square", "SquaredDifference"}
    assert FLOAT16.deny - BFLOAT16.deny == {"Mean", "Sum"}
    assert len(FLOAT16.names) == 39 + 43 + 9 + 95 + 15


# --- any graph: sweeps over a matrix until nothing changes ---------------------------------------


def fixpoint(nodes: list[Node], *, follow: bool) -> list[str]:
    """The rules one node at a time, swept over boolean arrays until they are still."""
    index = {node.name: i for i, node in enumerate(nodes)}
    reads = np.zeros((len(nodes), len(nodes)), bool)  # reads[i, j]: i reads j
    for i, node in enumerate(nodes):
        reads[i, [index[source] for source in node.inputs]] = True
    ops = np.array([node.operation for node in nodes])
    allow, infer, deny_op, clear = (ops == OF[k] for k in ("allow", "infer", "deny", "clear"))
    able = np.array([node.float32 for node in nodes])

    def still(start: np.ndarray, step) -> np.ndarray:
        now = start
        while not np.array_equal(then := now | step(now), now):
            now = then
        return now

    leads = still(infer | deny_op, lambda s: clear & (reads.T @ s))  # leads on to infer or deny
    deny = still(deny_op, lambda s: leads & (reads @ s))
    root = allow & able
    free = able & ~deny & (infer | clear)
    after = still(root, lambda s: free & (reads @ s))
    low = still(root, lambda s: after & (reads.T @ s))
    if follow:
        for i in range(len(nodes)):  # in order, as each one may follow the one before
            inputs = np.flatnonzero(reads[i])
            low[i] |= infer[i] & free[i] & low[inputs].any() and not deny[inputs].any()
    low = still(low, lambda s: free & clear & ((reads @ s) | (reads.T @ s)))
    own = np.select([infer, clear], ["infer", "clear"], "unlisted")
    return np.where(low, "allow", np.where(deny, "deny", own)).tolist()


@st.composite
def graphs(draw):
    """Up to 24 nodes; mostly in topological order, with loops now and then."""
    size = draw(st.integers(1, 24))
    loops = draw(st.booleans())
    nodes = []
    for i in range(size):
        before = st.integers(0, size - 1 if loops else i - 1)
        inputs = draw(st.lists(before, max_size=3)) if loops or i else []
        kind = draw(st.sampled_from(list(OF.values())))
        able = draw(st.integers(0, 7)) > 0
        nodes.append(Node(f"n{i}", kind, tuple(f"n{j}" for j in inputs), able))
    return nodes


@given(graphs(), st.booleans())
def test_any_graph(nodes, follow):
    assert painted(nodes, follow=follow) == fixpoint(nodes, follow=follow)


def test_many_random_graphs():
    """More and larger ones than Hypothesis draws: 300 of up to 60 nodes."""
    random = np.random.default_rng(7)
    seen: dict[str, int] = {}
    for _ in range(300):
        size = int(random.integers(10, 60))
        kinds = random.choice(list(OF.values()), size, p=[0.2, 0.3, 0.1, 0.3, 0.1])
        nodes = [
            Node(f"n{i}", str(kind), tuple(f"n{j}" for j in random.integers(max(0, i - 6), i, 2))
                 if i else (), bool(random.random() < 0.95))
            for i, kind in enumerate(kinds)
        ]  # fmt: skip
        got = painted(nodes)
        assert got == fixpoint(nodes, follow=True)
        for name in got:
            seen[name] = seen.get(name, 0) + 1
    assert min(seen.get(c.value, 0) for c in Colour) > 200, "some colour hardly occurred"


@given(graphs())
def test_casts_lie_where_lowered_and_other_nodes_meet(nodes):
    colours = colour(nodes, LISTS)
    by_name = {node.name: node for node in nodes}
    want = set()
    for node in nodes:
        for source in node.inputs:
            here, there = (colours[n] is Colour.ALLOW for n in (source, node.name))
            if here != there and node.float32 and by_name[source].float32:
                want.add((source, node.name, there))
    got = [(b.source, b.target, b.lowers) for b in borders(nodes, colours)]
    assert set(got) == want
    assert len(got) == len(want)


# --- what TensorFlow painted ---------------------------------------------------------------------

GRAPHS = Path(__file__).with_name("grappler_graphs.txt")


def recorded() -> list[tuple[list[Node], str]]:
    found = []
    for line in GRAPHS.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            continue
        words = re.findall(r"(\w+)\(([\d,]*)\)=([AD.])", line)
        assert len(words) == len(line.split())
        nodes = [
            Node(str(i), operation, tuple(filter(None, inputs.split(","))))
            for i, (operation, inputs, _) in enumerate(words)
        ]
        found.append((nodes, "".join(mark for *_, mark in words)))
    return found


def test_graphs_that_tensorflow_painted():
    marks = {Colour.ALLOW: "A", Colour.DENY: "D"}
    cases = recorded()
    assert len(cases) > 30
    for nodes, want in cases:
        assert "".join(marks.get(c, ".") for c in colour(nodes, FLOAT16).values()) == want
