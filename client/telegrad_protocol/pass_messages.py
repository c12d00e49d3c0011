"""Instructions about the client's places in the backward graph, passes that stop there, and random state."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from .queries import SessionQuery


class ClientNode(Struct, frozen=True, array_like=True, tag=22, gc=False):
    """Make node ``id`` of the backward graph, whose derivative the client computes, the history of ``outputs``.

    ``inputs`` are what its gradients flow to. Of both, None stands for what is not differentiable. ``modified`` are
    the numbers of the outputs that are inputs which were modified in place. Without ``inputs`` the graph begins at the
    node. Where the node, or a watched place, exists already it becomes the history of further ``outputs``, and the
    rest is not read. ``saved`` are tensors that the derivative needs as they are now: gradients of the node cannot be
    taken once they were modified in place.
    """

    id: int
    inputs: tuple[int | None, ...]
    outputs: tuple[int | None, ...]
    modified: tuple[int, ...] = ()
    saved: tuple[int, ...] = ()


class Watch(Struct, frozen=True, array_like=True, tag=23, gc=False):
    """Give the place in the backward graph that ``tensor`` has now the number ``id``: a pass can stop there."""

    id: int
    tensor: int


class TakePlace(Struct, frozen=True, array_like=True, tag=30, gc=False):
    """Let tensor ``id`` be the leaf that tensor ``former`` was, which has other elements and is about to be freed.

    Gradients of what was computed of ``former`` are those of ``id`` from here on, and so is the gradient that it has.
    What graphs have saved of it are the elements of ``id``, where these lie alike.
    """

    id: int
    former: int


class BeginPass(Struct, frozen=True, array_like=True, tag=24, gc=False):
    """Begin a backward pass, number ``id``, that stops at the client's nodes and watched places in ``stops``.

    It goes on to where nothing is left but what lies behind stops. With ``inputs`` it computes gradients of these
    alone, else it accumulates into leaves.
    """

    id: int
    site: int
    roots: tuple[int, ...]
    gradients: tuple[int | None, ...]
    stops: tuple[int, ...]
    inputs: tuple[int, ...] | None
    retain_graph: bool
    create_graph: bool


class TakeGradients(Struct, frozen=True, array_like=True, tag=25, gc=False):
    """Give the gradients that have reached a stop the ids ``outs``; zeros where none has, nothing where an id is None.

    A watched place has one gradient, a client's node one for each of its outputs.
    """

    id: int
    site: int
    stop: int
    outs: tuple[int | None, ...]


class GiveGradients(Struct, frozen=True, array_like=True, tag=26, gc=False):
    """Let a pass go on behind a stop with these gradients; they are as they were where ``gradients`` is None.

    A watched place takes one gradient, a client's node one for each of its inputs. ``leaves`` are as in ``Backward``.
    """

    id: int
    site: int
    stop: int
    gradients: tuple[int | None, ...] | None
    leaves: tuple[tuple[int, int], ...] = ()


class EndPass(Struct, frozen=True, array_like=True, tag=27, gc=False):
    """End a backward pass that has left all stops behind it, and give gradients ids.

    ``leaves`` are as in ``Backward``; ``outs`` are the ids of the gradients of the pass's inputs, or with ``adds`` the
    gradients of its inputs are accumulated into these.
    """

    id: int
    site: int
    leaves: list[tuple[int, int]]
    outs: tuple[int | None, ...]
    adds: bool


class ForwardGradient(Struct, frozen=True, array_like=True, tag=29, gc=False):
    """Compute the products of the Jacobian of ``roots`` by ``sources`` with ``tangents`` as new tensors ``outs``.

    ``sources`` are client's nodes and watched places. A root that no source leads to gets zeros.
    """

    site: int
    roots: tuple[int, ...]
    sources: tuple[int, ...]
    tangents: tuple[int, ...]
    outs: tuple[int, ...]
    create_graph: bool


class RandomState(Struct, frozen=True, array_like=True, tag=28, gc=False):
    """Note the states of all generators under number ``id``; or with ``restores``, put them into those noted states."""

    id: int
    restores: bool


class KeepSaved(SessionQuery, frozen=True):
    """Answered with None once what graphs have saved of a tensor's memory is a copy, so that the tensor may change."""

    id: int


Step: TypeAlias = tuple[str, int, int]
"""From a node of this operation, with so many operands that require a gradient, to what computed one of these."""


class FindNode(SessionQuery, frozen=True):
    """Give the node that some steps lead to the number ``before``, and the place behind it the number ``after``.

    The steps begin at what computed tensor ``source``, or at the client's node ``source``, and from there at its edge
    ``edge``; the node reached is one of operation ``name``. A pass can stop at a node before it computes gradients, and
    behind it, before these are added to others. The answer: metas of the outputs, None where no gradient reaches one;
    metas of the gradients that the node computes, None where it computes none; and ``[name, kind, value]`` of all that
    the formulas name.
    """

    before: int
    after: int
    source: int
    edge: int | None
    steps: list[Step]
    name: str


class SavedTensor(SessionQuery, frozen=True):
    """Give a tensor that node ``stop`` has saved under ``name`` the id ``out``; ``place`` is its place in a list.

    The answer: None where there is none, else its meta, whether it requires a gradient, and if it is a leaf of the
    session which id that has, 0 if none.
    """

    stop: int
    name: str
    place: int
    out: int


class PackSaved(SessionQuery, frozen=True):
    """Take what the operation of ``source``, named ``name``, has saved out of its nodes, under ids ``outs``.

    ``has_one_result`` tells that ``source`` is all that it computed. The answer: None where nothing saved is
    still there; else that of ``FindNode`` for the same numbers, and for each tensor its meta, what history it had
    (``leaf``, ``operand``, ``result`` or none), and the name and place that ``SavedTensor`` knows it by, if any. There
    may be more where there are as many as ``outs``.
    """

    before: int
    after: int
    source: int
    name: str
    has_one_result: bool
    outs: tuple[int, ...]


class PackOne(SessionQuery, frozen=True):
    """Take one tensor that node ``stop`` has saved out of it, under id ``out``; the answer is as in ``PackSaved``."""

    stop: int
    name: str
    place: int
    out: int


class GiveSaved(SessionQuery, frozen=True):
    """Give all tensors that were taken out of what is at ``stop``, in their order, for the pass that has come there."""

    stop: int
    ids: tuple[int, ...]
