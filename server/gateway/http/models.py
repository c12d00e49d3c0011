"""The bodies of HTTP requests and answers, as pydantic models. They document themselves at /docs and compute nothing.

``OperationStep`` reads like the call in Python: ``{"op": "add", "args": [{"tensor": 1}, 2.5], "out": 3}``.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    FailFast,
    Field,
    JsonValue,
    Tag,
    model_validator,
)

MAX_ID = 2**53 - 1
MAX_MEMBERS = 64

TensorId = Annotated[int, Field(ge=0, le=MAX_ID, description="id of a tensor, chosen by the client")]


def _check_plain(value: JsonValue) -> JsonValue:
    """What ``server.ipc.requests`` calls plain, and MessagePack can carry."""
    match value:
        case bool() | None | float():
            return value
        case int() if not -(2**63) <= value < 2**64:
            raise ValueError("an integer does not fit into 64 bits")
        case str():
            _check_text(value)
        case list():
            for item in value:
                _check_plain(item)
        case dict():
            _check_marked(value)
    return value


def _check_text(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError("a string holds half of a surrogate pair") from error
    return text


def _check_marked(value: dict[str, JsonValue]) -> None:
    match value:
        case {"tensor": int(id)} if len(value) == 1 and not isinstance(id, bool) and 0 <= id <= MAX_ID:
            return
        case {"complex": [int() | float() as re, int() | float() as im]} if len(value) == 1:
            _check_plain([re, im])
            return
    raise ValueError('an object must be {"tensor": id} or {"complex": [re, im]}')


def _as_tuple(value: Any) -> Any:
    return (value,) if isinstance(value, int) else value


Text = Annotated[str, AfterValidator(_check_text)]
Plain = Annotated[JsonValue, AfterValidator(_check_plain)]
Outs = Annotated[tuple[TensorId, ...], BeforeValidator(_as_tuple, json_schema_input_type=int | list[int])]


Lease = Annotated[
    float | None,
    Field(ge=1, allow_inf_nan=False, description="how long the session is to outlive its connection, in seconds"),
]
Gpus = Annotated[
    int | None,
    Field(
        strict=True, ge=0, le=1024,
        description="GPUs that its worker must have; by default 1 where the server has one, and 0 for any worker",
    ),
]  # fmt: skip


class Strict(BaseModel):
    """A body in which an unknown member is an error."""

    model_config = ConfigDict(extra="forbid")


class OpenSession(BaseModel):
    """How a client describes itself; everything is optional, and other members may be added."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Plain] = Field(init=False)

    client: Text | None = Field(default=None, max_length=200, description="name and version, for the logs")
    protocol: int | None = Field(default=None, description="protocol version; the server refuses another than its own")
    table_hash: Text | None = Field(default=None, max_length=200, description="hash of the operation table, likewise")
    lease_seconds: Lease = None
    gpus: Gpus = None
    own_worker: bool = Field(
        default=False, strict=True, description="whether it is to live on a worker process where no other session does"
    )
    kernels: bool = Field(default=False, description="whether the session is to run CUDA kernels of its own")

    @model_validator(mode="before")
    @classmethod
    def _check_size(cls, value: Any) -> Any:
        if isinstance(value, dict) and len(value) > MAX_MEMBERS:
            raise ValueError(f"a client may describe itself with {MAX_MEMBERS} members, not {len(value)}")
        return value

    @model_validator(mode="after")
    def _check_names(self) -> OpenSession:
        for name in self.__pydantic_extra__:
            _check_text(name)
        return self


class AttachSession(OpenSession):
    """How a client describes itself that takes a session over."""

    takeover: bool = Field(default=False, description="also from a client that is connected, which loses it then")


class DetachSession(Strict):
    """A client leaves a session."""

    attachment: int = Field(description="as the client was told when it attached; another one has left already")
    lease_seconds: Lease = None


class SessionDetached(BaseModel):
    """A session that no client uses; it ends after `lease_seconds`."""

    session: str
    lease_seconds: float


class OwnSession(BaseModel):
    """An open session, as its owner sees it. Without its key: that is told only to who opens it or attaches to it."""

    session: str
    opened: float = Field(description="when, in seconds since 1970")
    idle_seconds: float = Field(description="since the client last sent work, to half a second")
    lease_seconds: float
    lease_left_seconds: float = Field(description="when the session ends unless something is heard of its client")
    in_use: bool = Field(description="whether a client is connected and was heard of lately")
    worker: int
    devices: list[str]
    node_devices: list[str] = Field(description="what operators call `devices`, in the same order")
    allocated_bytes: dict[str, int] = Field(description="in tensors, by device; a worker that does not answer has none")
    client: dict[str, Any] = Field(description="how the client describes itself: `host`, `user`, `pid`, `python`")


class SessionOpened(BaseModel):
    """A new session. `key` is a secret: it goes into the header `Telegrad-Session-Key` of every request about it."""

    session: str
    key: str
    protocol: int
    server_version: str
    table_hash: str
    dtypes: list[str]
    devices: list[str]
    default_device: str
    limits: dict[str, int]
    lease_seconds: float
    worker: int = Field(description="number of the worker that it lives on")
    node_devices: list[str] = Field(description="what operators call `devices`, in the same order")
    attachment: int
    isolation: Literal["shared", "tenant", "session"] = Field(
        description="whose sessions live on its worker: everybody's, those of one tenant, or this one alone"
    )


class TensorStep(Strict):
    """Make a tensor of JSON numbers, nested as its shape; `dtype` is inferred as `torch.tensor` does.

    `{"complex": [re, im]}` is a complex element, and `"NaN"`, `"Infinity"`, `"-Infinity"` are what JSON cannot say.
    """

    op: Literal["tensor"]
    data: Any = Field(examples=[[[1, 2], [3, 4]]])
    dtype: str | None = Field(default=None, examples=["float32"])
    device: Text = Field("", description="the session's default device where empty")
    out: TensorId | None = Field(default=None, description="id of the new tensor; chosen by the server where absent")
    requires_grad: bool = False
    values: bool = Field(default=False, description="answer the elements too")


class OperationStep(Strict):
    """Call an operation by the name and with the arguments it has in Python.

    An argument is a number, a string (also for a dtype or a device), a boolean, null, a list, `{"tensor": id}` or
    `{"complex": [re, im]}`.
    """

    op: Text = Field(min_length=1, max_length=100, examples=["add"])
    args: list[Plain] = Field([], examples=[[{"tensor": 1}, 2.5]])
    kwargs: dict[Text, Plain] = Field({}, examples=[{"alpha": 2}])
    out: Outs | None = Field(
        default=None, description="id of the result, or a list of ids; chosen by the server where absent", examples=[3]
    )
    requires_grad: bool = Field(default=False, description="set on the results, which must be new leaves")
    values: bool = Field(
        default=False, description="answer the elements of the results too, as they are after this step"
    )


def _step_kind(value: Any) -> str:
    name = value.get("op") if isinstance(value, dict) else getattr(value, "op", None)
    return "tensor" if name == "tensor" else "operation"


Step: TypeAlias = Annotated[
    Annotated[TensorStep, Tag("tensor")] | Annotated[OperationStep, Tag("operation")], Discriminator(_step_kind)
]


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, dict) else value


Steps = Annotated[
    Annotated[list[Step], FailFast(), Field(min_length=1, max_length=10_000)],
    BeforeValidator(_as_list, json_schema_input_type=TensorStep | OperationStep | list[TensorStep | OperationStep]),
]


class Tensor(BaseModel):
    """What is known of a tensor, and its elements where they were asked for; strides and offset in elements."""

    id: int
    dtype: str
    shape: list[int]
    strides: list[int]
    offset: int
    device: str
    requires_grad: bool
    values: Any = Field(default=None, description='nested as the shape; `"NaN"`, `"Infinity"`, `"-Infinity"` for those')


class StepResult(BaseModel):
    """The results of one step."""

    op: str
    tensors: list[Tensor]


class OpsAnswer(BaseModel):
    """The results of all steps, in their order."""

    results: list[StepResult]


class BackwardRequest(Strict):
    """Accumulate the gradients of `roots` into the leaves they depend on."""

    roots: Outs = Field(description="id of a tensor, or a list of ids", examples=[7])
    gradients: list[TensorId | None] | None = Field(
        default=None, description="ids of the gradients of the roots; null or absent for scalars"
    )
    inputs: list[TensorId] | None = Field(
        default=None, description="the leaves that are wanted; all of them where absent"
    )
    retain_graph: bool | None = Field(default=None, description="defaults to `create_graph`")
    create_graph: bool = False
    values: bool = Field(default=False, description="answer the elements of the gradients too")


class LeafGradient(BaseModel):
    """A leaf and its accumulated gradient."""

    leaf: int
    gradient: Tensor


class BackwardAnswer(BaseModel):
    """The gradients that were accumulated."""

    gradients: list[LeafGradient]


class Device(BaseModel):
    """A device of a worker; memory in bytes. What its worker has not told is null."""

    device: str = Field(description="its name on the node, which other endpoints take as `?device=`")
    worker: int = Field(description="number of the worker that it belongs to")
    session_device: str = Field(description="its name in the worker's sessions")
    state: Literal["serving", "starting", "restarting", "unresponsive"] = Field(description="of the worker")
    sessions: int = Field(description="open sessions of the worker")
    name: str | None = None
    type: str
    index: int | None
    total_memory: int | None = None
    free_memory: int | None = None
    allocated_memory: int | None = None
    reserved_memory: int | None = None
    memory_quota: int | None = Field(None, description="what your sessions may have in use on it together")
    host_quota: int = Field(0, description="what they may take of the host on its worker besides tensors' elements")
    capability: tuple[int, int] | None = Field(None, description="CUDA compute capability")
    multiprocessors: int | None = None
    pid: int | None = Field(None, description="the worker's process")


class Status(BaseModel):
    """Whether the server lives."""

    status: Literal["ok"]


WorkerUse = Annotated[
    Literal["shared", "tenant", "session", "spare"],
    Field(description="whose sessions live on the worker: everybody's, those of one tenant, one alone, nobody's yet"),
]


class WorkerState(BaseModel):
    """A worker, and whether it takes sessions: while it is `serving`."""

    worker: int
    devices: list[str] = Field(description="their names on the node")
    state: Literal["serving", "unresponsive", "starting", "restarting"]
    restarts: int = Field(description="how often it was started again")
    use: WorkerUse


class Readiness(BaseModel):
    """The server takes sessions: at least one worker serves."""

    status: Literal["ready"]
    workers: list[WorkerState]


class MemoryHistory(Strict):
    """What the allocators note of every allocation."""

    enabled: Literal["all", "state"] | None = Field(description="a trace, the lines of what is in use, or nothing")
    max_entries: int = Field(100_000, ge=0, le=10_000_000, description="length of the trace")
    device: str = Field("", description="such as `cuda:0`, a node's name; all devices where empty")
