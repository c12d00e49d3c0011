"""Nested containers of ``torch.utils._pytree``: keys, classes of programs, and specifications as text."""

from __future__ import annotations

from typing import Any

import pytest

from .twins import assert_same, evaluate

PROLOGUE = """
from collections import OrderedDict, defaultdict, deque, namedtuple
import dataclasses
P = __import__("importlib").import_module(t.__name__ + ".utils._pytree")
Pair = namedtuple("Pair", "first second")
class Box:
    def __init__(self, a, b):
        self.a, self.b = a, b
def attempt(run):
    try:
        return run()
    except Exception as error:
        return [kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins"][0]
def keys(tree):
    return [(P.keystr(path), leaf) for path, leaf in P.tree_flatten_with_path(tree)[0]]
tree = {"x": [1, (2, Pair(3, None))], "y": OrderedDict(z=4), "d": defaultdict(list, {"q": 5}), "e": deque([6], 7)}
"""
PROGRAMS = [
    """
    size = t.Size([2, 3])
    leaves, spec = P.tree_flatten({"size": size})
    read = P.treespec_loads(P.treespec_dumps(spec))
    (leaves, repr(spec), read == spec, P.tree_map(lambda n: n + 1, size) == (3, 4), keys(size), P.treespec_dumps(spec))
    """,
    """
    P.register_pytree_node(Box, lambda box: ([box.a, box.b], "ctx"), lambda values, _: Box(*values),
        flatten_with_keys_fn=lambda box: ([(P.GetAttrKey("a"), box.a), (P.GetAttrKey("b"), box.b)], "ctx"))
    again = attempt(lambda: P.register_pytree_node(Box, None, None))
    half = attempt(lambda: P.register_pytree_node(type('Half', (), {}), None, None, to_dumpable_context=str))
    kept = keys({"c": Box(1, [2]), **tree})
    P._deregister_pytree_node(Box)
    (kept, again, half, P.tree_leaves(Box(1, 2)) == [1])
    """,
    """
    @dataclasses.dataclass
    class Data:
        x: int
        y: list
        z: object = None
    whole = attempt(lambda: P.register_dataclass(Data, field_names=["x"]))
    foreign = attempt(lambda: P.register_dataclass(Box))
    P.register_dataclass(Data, serialized_type_name="Data")
    P.register_dataclass(Box, field_names=["a", "b"])
    box = P.tree_map(lambda v: v * 2, Box(1, [2]))
    leaves, spec = P.tree_flatten(Data(1, [2, 3]))
    (whole, foreign, keys(Data(1, [2, 3])), str(P.tree_map(str, Data(1, [2]))).split(".")[-1], leaves, spec.num_leaves,
     spec.context, (box.a, box.b), keys(Box(1, None)))
    """,
    """
    @dataclasses.dataclass(frozen=True)
    class Fixed:
        value: int
    refused = attempt(lambda: P.register_constant(Box))
    P.register_constant(Fixed)
    leaves, spec = P.tree_flatten([1, Fixed(2)])
    other = P.tree_structure([1, Fixed(3)])
    (refused, leaves, spec == other, spec == P.tree_structure([5, Fixed(2)]), P.tree_unflatten([9], spec)[1].value,
     P.is_constant_class(Fixed), P.is_constant_class(Box), spec.children()[1].context.value.value)
    """,
    """
    parts = (1, [1, (2, {"k": 3})], OrderedDict(a=1), deque([1], 3), {1: 2}, tree["d"])
    specs = [P.tree_structure(part) for part in parts]
    texts = [P.treespec_dumps(spec) for spec in specs]
    unnamed = attempt(lambda: P.treespec_dumps(P.tree_structure(Pair(1, 2))))
    P._register_namedtuple(Pair, serialized_type_name="pair")
    texts.append(P.treespec_dumps(P.tree_structure(tree)))
    P.register_pytree_node(Box, lambda box: ([box.a], box.b), lambda values, b: Box(*values, b),
        serialized_type_name="box", to_dumpable_context=lambda b: b + 1, from_dumpable_context=lambda b: b - 1)
    texts.append(P.treespec_dumps(P.tree_structure(Box([1], 2))))
    back = [P.treespec_dumps(P.treespec_loads(text)) for text in texts]
    wrong = [attempt(lambda: P.treespec_loads('[7, {}]')), attempt(lambda: P.treespec_dumps(specs[0], 3)),
             attempt(lambda: P.treespec_loads('[1, {"type": "os.system", "context": "null", "children_spec": []}]'))]
    (texts, back == texts, unnamed, wrong[:2])
    """,
    """
    spec = P.tree_structure([1, {"a": (2, 3)}])
    (P.treespec_pprint(spec), str(P.treespec_tuple([P.treespec_leaf(), spec])),
     str(P.treespec_dict({"a": spec}, b=spec)),
     P.arg_tree_leaves(1, [2], k={"v": 3}), P.key_get([1, {"a": 5}], (P.SequenceKey(1), P.MappingKey("a"))),
     P.GetAttrKey("real").get(3), P.SequenceKey(1).idx, P.MappingKey("k").key, P.LeafSpec() == P.treespec_leaf())
    """,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS)
def test_trees_are_pytorchs(tg: Any, program: str) -> None:
    lines = "\n".join(line.removeprefix("    ") for line in program.strip("\n").splitlines())
    assert_same(*evaluate(PROLOGUE + lines, tg))


def test_text_of_a_specification_names_registered_classes_alone(tg: Any) -> None:
    from telegrad.utils import _pytree

    text = '[1, {"type": "os.system", "context": "null", "children_spec": []}]'
    with pytest.raises(NotImplementedError, match=r"os\.system in tree specs is not supported here"):
        _pytree.treespec_loads(text)
