"""Lazy modules: those that learn sizes from their first input and then become ordinary ones."""

from __future__ import annotations

import itertools
from typing import Any

from .parameter import is_lazy


class LazyModuleMixin:
    """Base of lazy modules, before the class that they become in the bases; its parameters are uninitialised at first.

    ``initialize_parameters`` gets the arguments of the first call and gives the parameters their shapes; afterwards the
    module is one of ``cls_to_become``.
    """

    cls_to_become: type[Any] | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        mine: Any = self
        self._load_hook = mine._register_load_state_dict_pre_hook(self._lazy_load_hook)
        self._initialize_hook = mine.register_forward_pre_hook(type(self)._infer_parameters, with_kwargs=True)

    def _lazy_load_hook(
        self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool, missing_keys: Any, unexpected_keys: Any,
        error_msgs: Any,
    ) -> None:  # fmt: skip
        """Give parameters that have no shape yet those of the tensors that are about to be loaded."""
        mine: Any = self
        for name, param in itertools.chain(mine._parameters.items(), mine._buffers.items()):
            given = state_dict.get(prefix + name)
            if given is not None and is_lazy(param) and not is_lazy(given):
                param.materialize(given.shape)

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Give the parameters their shapes from the arguments of the first call."""
        raise NotImplementedError(f"initialize_parameters is not implemented for {type(self).__name__}")

    def has_uninitialized_params(self) -> bool:
        """Tell whether a parameter or buffer of this module has no shape yet."""
        mine: Any = self
        return any(map(is_lazy, itertools.chain(mine._parameters.values(), mine._buffers.values())))

    def _infer_parameters(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.initialize_parameters(*args, **kwargs)
        if self.has_uninitialized_params():
            raise RuntimeError(f"module {type(self).__name__} has not been fully initialized")
        self._initialize_hook.remove()
        self._load_hook.remove()
        del self._initialize_hook, self._load_hook
        if self.cls_to_become is not None:
            self.__class__ = self.cls_to_become

    def _replicate_for_data_parallel(self) -> Any:
        raise RuntimeError("Modules with uninitialized parameters can't be used with `DataParallel`.")
