"""``kept`` and ``detach``: tensors that stay on the server under names, for the client that comes back for them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, MutableMapping
from typing import Any, Final, overload

from telegrad._ops.functions import function
from telegrad._session.connect import current_connection
from telegrad._session.current import current_session
from telegrad._session.ending import DetachedSession
from telegrad._session.session import ClientSession
from telegrad._tensor.nested import flatten, unflatten
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import ALL
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError
from telegrad_protocol.messages import KeptTensor
from telegrad_protocol.meta import Device, Meta


class KeptTensors(MutableMapping[str, Any]):
    """What the current session keeps under names, also when this program leaves it or dies: see ``detach``.

    ``kept["model"] = model.state_dict()`` keeps a tensor, or nested dicts, lists and tuples of tensors, numbers,
    strings and None. No elements are moved or copied: what is kept is the tensor itself, and later changes in place
    change it. ``del kept["model"]`` lets go of it, and ``kept.pop("model")`` hands it over. Each change is one round
    trip.

    To a client that comes back, tensors are leaves without history, with their ``.grad`` and ``requires_grad``;
    parameters are plain tensors, and one tensor under several names is one tensor.
    """

    def __getitem__(self, name: str) -> Any:
        return _objects(current_session())[name]

    def __setitem__(self, name: str, value: Any) -> None:
        session = current_session()
        objects = _objects(session)
        if not isinstance(name, str):
            raise ArgumentTypeError(f"kept: names are strings, not {name!r}")
        tree, tensors = flatten(value, lambda leaf: leaf if isinstance(leaf, Tensor) else None, "keep")
        for tensor in tensors.values():
            if tensor._session is not session:
                raise ArgumentError("kept: a tensor of another session; bring it to this one with numpy()")
        structure = json.dumps([tree, list(tensors)], allow_nan=False)
        session.query("keep", name, structure, [tensor._id for tensor in tensors.values()])
        objects[name] = value

    def __delitem__(self, name: str) -> None:
        session = current_session()
        objects = _objects(session)
        if name not in objects:
            raise KeyError(name)
        session.query("stop_keeping", name)
        del objects[name]

    def __iter__(self) -> Iterator[str]:
        return iter(list(_objects(current_session())))

    def __len__(self) -> int:
        return len(_objects(current_session()))

    def __repr__(self) -> str:
        lines = [f"  {name}: {_summary(value)}" for name, value in self.items()]
        return "\n".join(["kept by the session:", *(lines or ["  nothing"])])


kept: Final = KeptTensors()
_making: Final = threading.Lock()


def _objects(session: ClientSession) -> dict[str, Any]:
    """Return what a session keeps, by name; handles are made at the first look after it was attached to."""
    with _making:
        objects = session.named
        if objects is None:
            described, named = session.kept.tensors, session.kept.named
            tensors = [_handle(session, tensor) for tensor in described]
            for tensor, description in zip(tensors, described, strict=True):
                if description.grad is not None:
                    tensor._grad = tensors[description.grad]
            objects = session.named = {
                name: _assemble(text, [tensors[place] for place in places]) for name, (text, places) in named.items()
            }
    return objects


def _handle(session: ClientSession, tensor: KeptTensor) -> Tensor:
    meta = Meta.of(tensor.shape, ALL[tensor.dtype], Device(tensor.device), tensor.strides, tensor.offset)
    handle = Tensor(session, tensor.id, meta)
    handle._requires_grad = tensor.requires_grad
    return handle


def _assemble(structure: str, tensors: list[Tensor]) -> Any:
    tree, names = json.loads(structure)
    return unflatten(tree, dict(zip(names, tensors, strict=True)).__getitem__)


def _summary(value: Any) -> str:
    if isinstance(value, Tensor):
        gradient = ", requires_grad" if value.requires_grad else ""
        return f"{value._meta} on {value.device}{gradient}"
    tensors = flatten(value, lambda leaf: leaf if isinstance(leaf, Tensor) else None, "keep")[1].values()
    nbytes = sum(tensor.nbytes for tensor in tensors)
    return f"{type(value).__name__} of {len(tensors)} tensors, {nbytes:,} bytes"


@overload
def detach(input: Tensor) -> Tensor: ...
@overload
def detach(*, lease: float | None = None, **named: Any) -> DetachedSession: ...
def detach(input: Tensor | None = None, *, lease: float | None = None, **named: Any) -> Any:
    """Leave the current session without ending it: ``detach(model=model.state_dict(), x=x)``.

    What is given by name is kept as ``kept`` keeps it; all else that this program holds in the session is freed. The
    session waits for ``lease`` seconds, by default as long as its lease was, for a client that comes back with
    ``connect(url, session=..., key=...)``, as what is returned says, and finds the tensors in ``kept``. Generators go
    on where they were; modes start anew. The names ``input`` and ``lease`` are taken: ``kept["input"] = x`` keeps such.

    With a tensor, ``detach(input)``, this is PyTorch's function: a view of the same memory without gradient history.

    Raises the failure of an operation that has not been seen, and then the session stays attached; NotSupportedError
    where the session would end with this process.
    """
    if input is not None:
        if named or lease is not None:
            raise ArgumentTypeError("detach: a tensor to detach, or what the session is to keep by name, but not both")
        return function("detach")(input)
    connection = current_connection()
    connection.require_detachable()
    kept.update(named)
    return connection.detach(lease, tuple(kept))
