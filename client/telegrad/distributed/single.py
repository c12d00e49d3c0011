"""The group of one process: what ``torchrun --nproc_per_node=1`` starts, and programs that always make a group.

Among one, a sum is the tensor itself and the list of everybody's tensors has one, so nothing is sent. A group of more
processes is refused: a session has all GPUs of its worker.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from telegrad._tensor.tensor import Tensor
from telegrad.autograd import no_grad
from telegrad_protocol.errors import ArgumentError, NotSupportedError

USE_INSTEAD = "one session has all GPUs of its worker, see connect(gpus=...) and nn.DataParallel"


class ProcessGroup:
    """The group of this process alone."""

    def __init__(self, backend: str = "gloo") -> None:
        self._backend = backend

    def rank(self) -> int:
        """Return the number of this process in its group, which is 0."""
        return 0

    def size(self) -> int:
        """Return how many processes the group has, which is 1."""
        return 1

    def name(self) -> str:
        """Return the name of the backend that the program asked for."""
        return self._backend


class GroupMember:
    """The constants that stand for groups."""

    WORLD: ProcessGroup | None = None
    NON_GROUP_MEMBER = object()


class Work:
    """What a communication with ``async_op=True`` returns: it is done."""

    def wait(self, timeout: Any = None) -> bool:
        """Return True at once, since nothing was sent."""
        return True

    def is_completed(self) -> bool:
        """Whether the communication is done: it is."""
        return True

    is_success = is_completed


def is_initialized() -> bool:
    """Whether the program has made its group."""
    return GroupMember.WORLD is not None


def init_process_group(
    backend: str | None = None, init_method: str | None = None, timeout: Any = None, world_size: int = -1,
    rank: int = -1, store: Any = None, group_name: str = "", pg_options: Any = None, device_id: Any = None,
) -> None:  # fmt: skip
    """Make the group of this process; sizes that are left out are those of the environment, as in PyTorch."""
    if is_initialized():
        raise ArgumentError("trying to initialize the default process group twice!")
    size, place = _number("world_size", world_size), _number("rank", rank)
    if size != 1:
        raise NotSupportedError(
            f"distributed.init_process_group: a group has one process, not {size}; start the program once: "
            f"{USE_INSTEAD}"
        )
    if place != 0:
        raise ArgumentError(f"distributed.init_process_group: rank {place} is not below world_size 1")
    GroupMember.WORLD = ProcessGroup(backend or "gloo")


def _number(name: str, given: int) -> int:
    """Return the number that was given, or that of the environment."""
    if given >= 0:
        return given
    variable = name.upper()
    if variable not in os.environ:
        raise ArgumentError(
            "Error initializing torch.distributed using env:// rendezvous: environment variable "
            f"{variable} expected, but not set; pass {name}={0 if name == 'rank' else 1}"
        )
    return int(os.environ[variable])


def destroy_process_group(group: ProcessGroup | None = None) -> None:
    """Let go of the group; of another than the default one nothing is held."""
    default = default_group("destroy_process_group")
    if group is None or group is default:
        GroupMember.WORLD = None


def new_group(ranks: Sequence[int] | None = None, *args: Any, **options: Any) -> ProcessGroup | object:
    """Make a group of some of the processes: of this one, or of none."""
    default = default_group("new_group")
    if ranks is not None and any(rank != 0 for rank in ranks):
        raise ArgumentError(f"distributed.new_group: the group has rank 0 alone, not {list(ranks)}")
    return GroupMember.NON_GROUP_MEMBER if ranks is not None and not ranks else ProcessGroup(default.name())


def default_group(name: str) -> ProcessGroup:
    """Return the group, or say that it was not made."""
    if GroupMember.WORLD is None:
        raise ArgumentError(
            f"distributed.{name}: Default process group has not been initialized, please make sure to call "
            "init_process_group."
        )
    return GroupMember.WORLD


def get_rank(group: Any = None) -> int:
    """Return this process's place, which is -1 in a group that it is not in."""
    default_group("get_rank")
    return -1 if group is GroupMember.NON_GROUP_MEMBER else 0


def get_world_size(group: Any = None) -> int:
    """Return how many processes there are, which is -1 for a group that this one is not in."""
    default_group("get_world_size")
    return -1 if group is GroupMember.NON_GROUP_MEMBER else 1


def get_backend(group: ProcessGroup | None = None) -> str:
    """Return the name of the backend that the program asked for."""
    return (group or default_group("get_backend")).name()


def get_process_group_ranks(group: ProcessGroup | None) -> list[int]:
    """Return the ranks of a group's processes."""
    default_group("get_process_group_ranks")
    return [0]


def get_global_rank(group: ProcessGroup, group_rank: int) -> int:
    """Return the rank of a group's process."""
    default_group("get_global_rank")
    return _only(group_rank)


def get_group_rank(group: ProcessGroup, global_rank: int) -> int:
    """Return the place of a process in a group."""
    default_group("get_group_rank")
    return _only(global_rank)


def _only(rank: int | None) -> int:
    if rank:
        raise ArgumentError(f"distributed: there is no rank {rank} in a group of one process")
    return 0


@no_grad()
def _write(target: Tensor, source: Tensor) -> None:
    target.copy_(source.reshape(target.shape))


def _single(name: str, given: Sequence[Any]) -> Any:
    if len(given) != 1:
        raise ArgumentError(
            f"distributed.{name}: a list of one is wanted, one for each process, but it has {len(given)}"
        )
    return given[0]


def _into_list(name: str) -> Callable[[list[Any], Any], None]:
    """Return what puts a tensor into the list of everybody's."""
    return lambda targets, source: _write(_single(name, targets), source)


def _from_list(name: str) -> Callable[[Any, Sequence[Any]], None]:
    """Return what takes this process's part of a list."""
    return lambda target, sources: _write(target, _single(name, sources))


def _object_into_list(targets: list[Any], source: Any) -> None:
    targets[0] = copy.deepcopy(source)


def _object_from_list(targets: list[Any], sources: Sequence[Any]) -> None:
    _object_into_list(targets, _single("scatter_object_list", sources))


def _between_lists(targets: Sequence[Any], sources: Sequence[Any]) -> None:
    _write(_single("all_to_all", targets), _single("all_to_all", sources))


def _lists_into_list(targets: Sequence[Sequence[Tensor]], sources: Sequence[Tensor]) -> None:
    """Put each tensor into its place of the list that this process gets."""
    for target, source in zip(_single("all_gather_coalesced", targets), sources, strict=True):
        _write(target, source)


def _collective(name: str, move: Callable[..., None] | None, *parameters: str) -> Callable[..., Work | None]:
    """Return a communication that does ``move`` with the arguments of these names, which come first."""

    def communicate(*args: Any, **kwargs: Any) -> Work | None:
        default_group(name)
        given = dict(zip(parameters, args, strict=False)) | kwargs
        for rank in ("src", "dst"):
            _only(given.get(rank))
        if move is not None and all(given.get(parameter) is not None for parameter in parameters[:2]):
            move(*(given[parameter] for parameter in parameters[:2]))
        return Work() if kwargs.get("async_op") else None

    communicate.__name__ = communicate.__qualname__ = name
    communicate.__doc__ = "Communicate within the group of one process, which sends nothing."
    return communicate


COLLECTIVES: dict[str, Callable[..., Any]] = {
    name: _collective(name, move, *parameters.split())
    for name, move, parameters in (
        ("_all_gather_base", _write, "output_tensor input_tensor"),
        ("_reduce_scatter_base", _write, "output input"),
        ("all_gather", _into_list("all_gather"), "tensor_list tensor"),
        ("all_gather_coalesced", _lists_into_list, "output_tensor_lists input_tensor_list"),
        ("all_gather_into_tensor", _write, "output_tensor input_tensor"),
        ("all_gather_object", _object_into_list, "object_list obj"),
        ("all_reduce", None, "tensor op"),
        ("all_reduce_coalesced", None, "tensors op"),
        ("all_to_all", _between_lists, "output_tensor_list input_tensor_list"),
        ("all_to_all_single", _write, "output input"),
        ("barrier", None, "group"),
        ("broadcast", None, "tensor src"),
        ("broadcast_object_list", None, "object_list src"),
        ("gather", lambda tensor, targets: _write(_single("gather", targets), tensor), "tensor gather_list dst"),
        ("gather_object", lambda obj, targets: _object_into_list(targets, obj), "obj object_gather_list dst"),
        ("monitored_barrier", None, "group"),
        ("reduce", None, "tensor dst"),
        ("reduce_scatter", _from_list("reduce_scatter"), "output input_list"),
        ("reduce_scatter_tensor", _write, "output input"),
        ("scatter", _from_list("scatter"), "tensor scatter_list src"),
        ("scatter_object_list", _object_from_list, "scatter_object_output_list scatter_object_input_list src"),
    )
}  # fmt: skip
"""What processes do together, by name."""


def to_another(name: str) -> Callable[..., NoReturn]:
    """Return a function for two processes, which refuses."""

    def communicate(*args: Any, **kwargs: Any) -> NoReturn:
        default_group(name)
        raise NotSupportedError(f"distributed.{name}: there is no other process in a group of one; {USE_INSTEAD}")

    communicate.__name__ = communicate.__qualname__ = name
    communicate.__doc__ = "Refuse: there is no other process."
    return communicate
