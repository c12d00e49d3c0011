"""Which modules a program is in, forwards and backwards: the name of ``torch.utils.module_tracker``."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any
from weakref import WeakKeyDictionary

from telegrad._tensor.tensor import Tensor
from telegrad.autograd._client_pass import running
from telegrad.autograd.graph import register_multi_grad_hook
from telegrad.nn import Module
from telegrad.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from ._pytree import tree_flatten


class ModuleTracker:
    """A block in which ``parents`` has the names of the modules that are running, and ``Global``.

    ``is_bw`` tells whether a backward pass is under way.
    """

    def __init__(self) -> None:
        self.parents = {"Global"}
        self.is_bw = False
        self._known: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
        self._handles: list[Any] = []
        self._ends_with_pass: dict[str, bool] = {}
        """Whether no gradient flows out of a module, so that a pass is in it to its end."""

    def _name_of(self, module: Module) -> str:
        name = self._known.get(module)
        if name is None:
            name = self._known[module] = type(module).__name__
        for child_name, child in module.named_children():
            if child not in self._known:
                self._known[child] = f"{name}.{child_name}"
                self._name_of(child)  # those below it have names by it, also where it is not called itself
        return name

    def _pushing(self, name: str, is_backward: bool) -> Callable[..., None]:
        def push(*_: Any) -> None:
            self.is_bw = is_backward
            self.parents.add(name)
            if is_backward and self._ends_with_pass.get(name) and running.innermost is not None:
                running.innermost.at_end.append(self._popping(name, True))

        return push

    def _popping(self, name: str, is_backward: bool) -> Callable[..., None]:
        def pop(*_: Any) -> None:
            self.is_bw = is_backward and len(self.parents) > 1
            self.parents.discard(name)

        return pop

    def _before(self, module: Module, args: Any) -> None:
        name = self._name_of(module)
        self._pushing(name, False)()
        tensors = _tracked(args)
        self._ends_with_pass[name] = not tensors
        if tensors:
            self._handles.append(register_multi_grad_hook(tensors, self._popping(name, True)))

    def _after(self, module: Module, args: Any, result: Any) -> None:
        name = self._name_of(module)
        self._popping(name, False)()
        tensors = _tracked(result)
        if tensors:
            self._handles.append(register_multi_grad_hook(tensors, self._pushing(name, True), mode="any"))

    def __enter__(self) -> ModuleTracker:
        self._own = [register_module_forward_pre_hook(self._before), register_module_forward_hook(self._after)]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for handle in [*self._own, *self._handles]:
            handle.remove()
        self._handles.clear()
        self.parents, self.is_bw = {"Global"}, False


def _tracked(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_flatten(tree)[0] if isinstance(leaf, Tensor) and leaf.requires_grad]
