"""Products of few rows with what stands around them: the normalization of the rows, and steps on the results.

Products of the same rows are one kernel. Only a device that has a kernel for it joins them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from server.engine.programs.analysis import Analysis
from server.engine.programs.fused import JOINERS, Kernel, Register, joins
from server.engine.programs.graph import Slot, Step, slots_in
from server.engine.programs.grouping import Group, Grouping
from server.engine.programs.joined import PRODUCTS, Joined
from server.engine.programs.joins.product_parts import NORMS, Part, Products
from server.engine.programs.lowering import Lowered, lowered
from telegrad_protocol.meta import Meta

from .uses import Uses

_PRODUCT: Final = "linear"


def join_products(grouping: Grouping, uses: Uses) -> Grouping:
    """Join products with the steps that read them, then those of the same rows with what normalizes these."""
    if not any([(key, PRODUCTS) in JOINERS for key in grouping.keys.values()]):
        return grouping
    found = [p for p, step in enumerate(grouping.steps) if _is_product(grouping, uses, p)]
    for position in found:
        for reader in uses.readers_of(grouping.steps[position].outs[0]):
            _absorb_reader(grouping, uses, grouping.by_step[position], grouping.by_step[reader])
    alike: dict[Slot, list[int]] = {}
    for position in found:
        alike.setdefault(grouping.analysis.roots[_input_of(grouping.steps[position])], []).append(position)
    for rows, positions in alike.items():
        grouping = _with_norm(grouping, uses, rows, positions) or _together(grouping, uses, positions) or grouping
    return grouping


def _input_of(step: Step) -> Slot:
    slot: Slot = step.args[0]
    return slot


def _is_product(grouping: Grouping, uses: Uses, position: int) -> bool:
    """Whether a step is a product that the device's kernel takes."""
    return grouping.steps[position].operator.op.name == _PRODUCT and _is_taken(grouping, uses, [position])


def _is_taken(grouping: Grouping, uses: Uses, positions: Sequence[int]) -> bool:
    """Whether these steps are one kernel of a device."""
    if any([grouping.analysis.bound[p] is None for p in positions]):
        return False
    made = lowered_products(sorted(positions), grouping.steps, grouping.analysis, uses.needed(positions))
    if made is None:
        return False
    kernel = made.kernel
    key = grouping.keys.get(kernel.device, 0)
    return isinstance(kernel, Joined) and (key, PRODUCTS) in JOINERS and joins(key, kernel)


def _absorb_reader(grouping: Grouping, uses: Uses, group: Group, other: Group) -> None:
    """Make the element-wise steps that read a product a part of it, with all else that they are joined with."""
    is_fitting = (other.candidate is not None and not other.kind) or other.kind == PRODUCTS
    if other is group or not is_fitting or not grouping.has_nothing_between(group, other):
        return
    if _is_taken(grouping, uses, group.positions + other.positions):
        grouping.absorb(group, other)
        group.kind = PRODUCTS


def _with_norm(grouping: Grouping, uses: Uses, rows: Slot, positions: Sequence[int]) -> Grouping | None:
    """The products with the normalization of their rows, which nothing else reads; None where they cannot be joined."""
    maker = uses.maker.get(rows)
    if maker is None or grouping.steps[maker].operator.op.name not in NORMS:
        return None
    is_private = not uses.is_output(rows) and set(uses.readers_of(rows)) == set(positions)
    outs, bound = grouping.steps[maker].outs, grouping.analysis.bound[maker]
    if not is_private or outs[0] != rows or bound is None or len(bound[1]) != 1:
        return None
    if any([uses.is_output(slot) or uses.readers_of(slot) for slot in outs[1:]]):
        return None
    return _together(grouping, uses, [*positions, maker])


def _together(grouping: Grouping, uses: Uses, positions: Sequence[int]) -> Grouping | None:
    """All of these steps as one kernel, with what each is joined with; None where they cannot be."""
    tried = grouping.copy()
    group = tried.by_step[positions[0]]
    for position in positions[1:]:
        other = tried.by_step[position]
        if other is not group:
            if not tried.has_nothing_between(group, other):
                return None
            tried.absorb(group, other)
    if len(group.positions) == 1 or not _is_taken(tried, uses, group.positions):
        return None
    group.kind = PRODUCTS
    return tried


def lowered_products(
    positions: Sequence[int], steps: Sequence[Step], analysis: Analysis, needed: frozenset[Slot]
) -> Lowered | None:
    """Describe the kernel of products and the steps around them; None where these are more than it can be."""
    norms = [steps[p] for p in positions if steps[p].operator.op.name in NORMS]
    rows = {analysis.roots[_input_of(steps[p])] for p in positions if _is_plain(steps[p])}
    if len(rows) != 1 or (norms and rows != {norms[0].outs[0]}):
        return None
    components = _components([p for p in positions if steps[p].operator.op.name not in NORMS], steps, analysis)
    if len(norms) > 1 or components is None or not _are_apart(components, norms, steps, analysis):
        return None
    builder = _Builder(steps, analysis, needed)
    if norms:
        builder.add_norm(norms[0])
    parts = [builder.part(number, component) for number, component in enumerate(components)]
    made = tuple([part for part in parts if part is not None])
    return builder.lowered(made) if len(made) == len(parts) else None


def described_products(
    positions: Sequence[int], steps: Sequence[Step], analysis: Analysis, needed: frozenset[Slot]
) -> Lowered:  # fmt: skip
    """Describe the kernel of a group that was joined, which can be described."""
    made = lowered_products(positions, steps, analysis, needed)
    if made is None:
        raise TypeError("these steps are not products with what stands around them")
    return made


def _components(positions: Sequence[int], steps: Sequence[Step], analysis: Analysis) -> list[list[int]] | None:
    """Steps that depend on each other, each with a product; None where a product depends on another."""
    of: dict[Slot, list[int]] = {}
    for position in positions:
        step = steps[position]
        roots = [analysis.roots[slot] for slot in (*slots_in(step.args), *step.outs)]
        reached = list({id(of[root]): of[root] for root in roots if root in of}.values())
        if reached and step.operator.op.name == _PRODUCT:
            return None
        merged = [p for component in reached for p in component] + [position]
        for root, component in list(of.items()):
            if any([component is one for one in reached]):
                of[root] = merged
        of.update(dict.fromkeys([analysis.roots[slot] for slot in step.outs], merged))
    components = [sorted(one) for one in {id(one): one for one in of.values()}.values()]
    has_product = all([any([_is_plain(steps[p]) for p in one]) for one in components])
    return components if components and has_product else None


def _is_plain(step: Step) -> bool:
    return step.operator.op.name == _PRODUCT


def _are_apart(
    components: Sequence[Sequence[int]], norms: Sequence[Step], steps: Sequence[Step], analysis: Analysis
) -> bool:
    """Whether no block of a kernel reads, as rows or weights or for another part, what another block writes."""
    written = [{n for p in one for n in analysis.effects[p].writes} for one in components]
    if not any(written):
        return True
    fixed = {slot for step in norms for slot in slots_in(step.args)}
    fixed |= {slot for one in components for p in one if _is_plain(steps[p]) for slot in slots_in(steps[p].args)}
    numbers = {analysis.memory_of(slot) for slot in fixed}
    seen = [
        {analysis.memory_of(s) for p in one for s in (*slots_in(steps[p].args), *steps[p].outs)} for one in components
    ]  # fmt: skip
    return not any([
        mine & numbers or any([mine & other for k, other in enumerate(seen) if k != place])
        for place, mine in enumerate(written)
    ])  # fmt: skip


class _Builder:
    """Gathers what a kernel reads and makes, by role."""

    def __init__(self, steps: Sequence[Step], analysis: Analysis, needed: frozenset[Slot]) -> None:
        self._steps, self._analysis, self._needed = steps, analysis, needed
        self._loads: dict[str, Slot] = {}
        self._news: dict[str, Slot] = {}
        self._norm, self._eps = "", 0.0

    def add_norm(self, step: Step) -> None:
        """Take the rows and the parameters of a normalization."""
        op = step.operator.op
        named = dict(zip([param.name for param in op.params], step.args))
        self._norm, self._eps = op.name, named["eps"]
        names = {"input": "input", "weight": "scale", "bias": "shift"}
        self._loads.update({names[n]: slot for n, slot in named.items() if n in names and slot.__class__ is Slot})

    def part(self, number: int, component: Sequence[int]) -> Part | None:
        """Take what one part reads and makes; None where results are not of one shape."""
        roots, known = self._analysis.roots, self._analysis.known
        weights: list[str] = []
        biases: list[str] = []
        product_of: dict[Slot, str] = {}
        for position in [p for p in component if _is_plain(self._steps[p])]:
            step = self._steps[position]
            input, weight, bias = step.args
            self._loads.setdefault("input", input)
            role = f"weight {number}.{len(weights)}"
            product_of[roots[step.outs[0]]] = role
            weights.append(role)
            biases.append("" if bias is None else role.replace("weight", "bias"))
            self._loads |= {role: weight, **({biases[-1]: bias} if bias is not None else {})}
        others = [p for p in component if not _is_plain(self._steps[p])]
        shapes = {getattr(known[self._steps[p].outs[0]], "shape", None) for p in component}
        if len(shapes) > 1:
            return None
        made = lowered(others, self._steps, self._analysis, self._needed) if others else None
        kernel, operands, results = self._kernel(made, product_of)
        sources = tuple([product_of.get(root, f"operand {number}.{k}") for k, root in enumerate(operands)])
        self._loads |= {role: root for role, root in zip(sources, operands) if root not in product_of}
        outs = tuple([f"out {number}.{k}" for k in range(len(results))])
        self._news |= dict(zip(outs, results))
        return Part(tuple(weights), tuple(biases), kernel, sources, outs)

    def _kernel(
        self, made: Lowered | None, product_of: dict[Slot, str]
    ) -> tuple[Kernel, tuple[Slot, ...], tuple[Slot, ...]]:
        """The element-wise kernel in which products are operands: those that are wanted are new values of it."""
        metas = {root: self._analysis.known[root] for root in product_of}
        if made is None or not isinstance(made.kernel, Kernel):
            loads = tuple([meta for meta in metas.values() if isinstance(meta, Meta)])
            plain = Kernel(loads[0].shape, loads, (), (), ())
            made = Lowered(plain, tuple(product_of), ())
        kernel, operands = made.kernel, made.operands
        assert isinstance(kernel, Kernel)
        final = {operands[place]: register for place, register in kernel.stores if operands[place] in product_of}
        wanted = [root for root in product_of if root in self._needed]
        news = [(final.get(root, Register(operands.index(root))), metas[root]) for root in wanted]
        stores = tuple([(place, r) for place, r in kernel.stores if operands[place] not in product_of])
        kept = tuple([(register, meta) for register, meta in news if isinstance(meta, Meta)])
        return kernel._replace(news=(*kernel.news, *kept), stores=stores), operands, (*made.results, *wanted)

    def lowered(self, parts: tuple[Part, ...]) -> Lowered:
        """What was gathered, as one kernel."""
        described = Joined(
            PRODUCTS, _PRODUCT, (Products(self._norm, self._eps, parts),), tuple(self._metas(self._loads)),
            tuple(self._metas(self._news)),
        )  # fmt: skip
        roots = self._analysis.roots
        return Lowered(
            described, tuple([roots[slot] for slot in self._loads.values()]),
            tuple([roots[slot] for slot in self._news.values()]),
        )  # fmt: skip

    def _metas(self, slots: dict[str, Slot]) -> Iterator[tuple[str, Meta]]:
        for role, slot in slots.items():
            meta = self._analysis.known[slot]
            if isinstance(meta, Meta):
                yield role, meta
