"""Colouring: what TensorFlow's mixed-precision rewrite makes of a graph of operations.

TensorFlow does not decide operation by operation. It paints the graph (grappler's
auto_mixed_precision): allowed operations are lowered; denied ones stay float32 and so does what
follows them through inferred operations; what lies between allowed ones, or directly follows
lowered ones, is lowered with them, and operations that only move numbers join their neighbours.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from fpemu.errors import InputError, did_you_mean
from fpemu.policies.tensorflow_lists import OperationLists

__all__ = ["Border", "Colour", "Node", "borders", "colour", "denied"]


class Colour(enum.Enum):
    """What becomes of a node; only ALLOW is lowered."""

    ALLOW = "allow"  #: lowered: computed in float16 or bfloat16
    DENY = "deny"  #: float32, because it is dangerous or follows what is
    INFER = "infer"  #: float32, as it neither follows nor lies between lowered operations
    CLEAR = "clear"  #: float32, as nothing around it is lowered
    UNLISTED = "unlisted"  #: as it is: no list names it, or it is allowed but not of float32


@dataclass(frozen=True)
class Node:
    """An operation in a graph (TensorFlow: one type attribute of it) and what it reads.

    >>> from fpemu.policies.colouring import Node
    >>> Node("layer/relu", "Relu", inputs=("layer/add",)).float32
    True

    Fields
        name: unique in the graph.
        operation: TensorFlow's name of the operation.
        inputs: names of the nodes whose results it reads; those that are not in the graph (of
            variables, constants, feeds) are refused: leave them out.
        float32: whether it is of float32 and could run in the lower format. Denial passes through
            nodes that are not; lowering does not.
    """

    name: str
    operation: str
    inputs: tuple[str, ...] = ()
    float32: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.inputs, str):
            raise InputError(f"node {self.name!r}: inputs={self.inputs!r} must be a tuple of names")
        object.__setattr__(self, "inputs", tuple(self.inputs))


@dataclass(frozen=True)
class Border:
    """An edge at which the rewrite puts a cast."""

    source: str
    target: str
    lowers: bool  #: to the lower format; otherwise to float32


@dataclass(frozen=True)
class _Graph:
    nodes: Mapping[str, Node]
    readers: Mapping[str, list[str]]

    def inputs(self, name: str) -> Iterable[str]:
        return self.nodes[name].inputs

    def outputs(self, name: str) -> Iterable[str]:
        return self.readers.get(name, ())

    def both(self, name: str) -> Iterator[str]:
        yield from self.inputs(name)
        yield from self.outputs(name)

    def of(self, operations: frozenset[str]) -> set[str]:
        return {name for name, node in self.nodes.items() if node.operation in operations}


def colour(
    nodes: Iterable[Node], lists: OperationLists, *, follow: bool = True
) -> dict[str, Colour]:
    """Return the colour of every node, in the order given.

    >>> from fpemu.policies.colouring import Node, colour
    >>> from fpemu.policies.tensorflow_lists import FLOAT16
    >>> graph = [Node("a", "MatMul"), Node("b", "Add", ("a",)), Node("c", "MatMul", ("b",)),
    ...          Node("d", "Exp", ("c",)), Node("e", "Add", ("d",))]
    >>> [colour.value for colour in colour(graph, FLOAT16).values()]
    ['allow', 'allow', 'allow', 'deny', 'deny']

    nodes: a graph; cycles are allowed. Names that are given twice, and inputs that are not in the
    graph, are refused. Nothing is lowered in a graph without allowed operations.
    follow: whether inferred operations that directly follow a lowered one, and no denied one, are
    lowered too, as TensorFlow 2.21 does; earlier ones did so for bfloat16 alone. They are taken
    in the order of `nodes`, so give a graph in topological order.
    Not painted: what TensorFlow does besides for tensor lists, while loops (NextIteration and
    Merge match), existing Casts and reads of reference variables.
    Source: AutoMixedPrecisionImpl::Optimize of TensorFlow 2.21, and what it does on random graphs.
    """
    graph = _read(nodes)
    deny = _denied(graph, lists)
    allow = _between(graph, lists, deny)
    if follow:
        allow = _followed(graph, lists, deny, allow)
    allow = _joined(graph, lists, deny, allow)
    return {
        name: Colour.ALLOW if name in allow else Colour.DENY if name in deny else _own(node, lists)
        for name, node in graph.nodes.items()
    }


def denied(nodes: Iterable[Node], lists: OperationLists) -> set[str]:
    """Return the nodes that are denied: step 2 of the colouring alone.

    >>> from fpemu.policies.colouring import Node, denied
    >>> from fpemu.policies.tensorflow_lists import FLOAT16
    >>> sorted(denied([Node("a", "Exp"), Node("b", "Relu", ("a",)), Node("c", "MatMul", ("b",))],
    ...               FLOAT16))
    ['a']
    """
    return _denied(_read(nodes), lists)


def borders(nodes: Iterable[Node], colours: Mapping[str, Colour]) -> list[Border]:
    """Return the edges between lowered and other float32 nodes: where casts go in.

    >>> from fpemu.policies.colouring import Colour, Node, borders
    >>> graph = [Node("a", "MatMul"), Node("b", "Exp", ("a",))]
    >>> borders(graph, {"a": Colour.ALLOW, "b": Colour.DENY})
    [Border(source='a', target='b', lowers=False)]

    A node that reads another twice makes one border. What lowered nodes read from outside of the
    graph is cast too.
    """
    graph = _read(nodes)
    edges = [(source, node.name) for node in graph.nodes.values()
             for source in dict.fromkeys(node.inputs)]  # fmt: skip
    lowered = {name for name in graph.nodes if colours.get(name) is Colour.ALLOW}
    return [
        Border(source, target, target in lowered)
        for source, target in edges
        if (source in lowered) is not (target in lowered)
        and graph.nodes[source].float32
        and graph.nodes[target].float32
    ]


# --- the steps -------------------------------------------------------------------------------


def _denied(graph: _Graph, lists: OperationLists) -> set[str]:
    """Denied operations, and what follows them until the last inferred or denied one."""
    leads = graph.of(lists.deny | lists.infer)
    clear = graph.of(lists.clear)
    upstream = _reach(leads, graph.inputs, clear.__contains__)
    return _reach(graph.of(lists.deny), graph.outputs, upstream.__contains__)


def _between(graph: _Graph, lists: OperationLists, deny: set[str]) -> set[str]:
    """Allowed operations, and inferred and clear ones that lie between two of them."""
    allow = {name for name in graph.of(lists.allow) if graph.nodes[name].float32}
    free = _lowerable(graph, lists.infer | lists.clear, deny)
    downstream = _reach(allow, graph.outputs, free.__contains__)
    return _reach(allow, graph.inputs, downstream.__contains__)


def _followed(graph: _Graph, lists: OperationLists, deny: set[str], allow: set[str]) -> set[str]:
    """Inferred operations too that read a lowered node and no denied one, in the graph's order."""
    free = _lowerable(graph, lists.infer, deny)
    found = set(allow)
    for name in graph.nodes:
        inputs = set(graph.inputs(name))
        if name in free and inputs & found and not inputs & deny:
            found.add(name)
    return found


def _joined(graph: _Graph, lists: OperationLists, deny: set[str], allow: set[str]) -> set[str]:
    """Clear operations too that are connected to lowered ones through clear ones."""
    free = _lowerable(graph, lists.clear, deny)
    return _reach(allow, graph.both, free.__contains__)


def _lowerable(graph: _Graph, operations: frozenset[str], deny: set[str]) -> set[str]:
    return {n for n in graph.of(operations) if graph.nodes[n].float32 and n not in deny}


def _reach(
    roots: set[str], neighbours: Callable[[str], Iterable[str]], enters: Callable[[str], bool]
) -> set[str]:
    """The roots and all that a walk from them reaches through nodes that it may enter."""
    found, todo = set(roots), list(roots)
    while todo:
        for name in neighbours(todo.pop()):
            if name not in found and enters(name):
                found.add(name)
                todo.append(name)
    return found


def _own(node: Node, lists: OperationLists) -> Colour:
    """The colour of a node that stays as it is."""
    for colour, names in ((Colour.INFER, lists.infer), (Colour.CLEAR, lists.clear)):
        if node.operation in names:
            return colour
    return Colour.UNLISTED


def _read(nodes: Iterable[Node]) -> _Graph:
    known: dict[str, Node] = {}
    readers: dict[str, list[str]] = defaultdict(list)
    for node in nodes:
        if node.name in known:
            raise InputError(f"graph: two nodes are named {node.name!r}; names must be unique")
        known[node.name] = node
    for node in known.values():
        for source in node.inputs:
            if source not in known:
                hint = did_you_mean(source, known)
                raise InputError(
                    f"graph: node {node.name!r} reads {source!r}, which is not in it; {hint}"
                    "leave out what comes from outside"
                )
            readers[source].append(node.name)
    return _Graph(known, readers)
