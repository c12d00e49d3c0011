"""What an operator can set: ``TELEGRAD_*`` variables, checked once at start. Reads the environment and nothing else.

The table in docs/configuration.md is generated from ``Settings``, so a field's description is its documentation.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, ByteSize, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from server.kernel_cache import DEFAULT_KERNEL_BYTES
from telegrad_protocol.errors import ArgumentError, ConfigurationError

from .device_groups import DeviceGroup, Groups, checked_groups, split_groups
from .placement import Isolation
from .workers.limits import Limits
from .workers.machine_memory import default_cpu_memory, default_host_quota

PREFIX: Final = "TELEGRAD_"
WORK_OF_A_CORE: Final = 2e11
"""Multiply-adds that one operation may be for each core of the machine, where nothing is set."""
CLIENT_VARIABLES: Final = {
    "TELEGRAD_URL": "address that `tg.connect()` uses where it is given none",
    "TELEGRAD_OWNER": "secret by which a server knows your sessions; by default in `~/.config/telegrad/owner`",
    "TELEGRAD_DISCONNECT_SECONDS": "how long `disconnect` and the end of a program wait for queued work; `30`",
    "TELEGRAD_MAX_AHEAD_SECONDS": "seconds of measured work that may be queued on the server before a program waits; "
    "`1` by default, `inf` for no bound",
    "TELEGRAD_NATIVE": "the path of a call in C, compiled once per machine where there is a compiler: by default "
    "`beside` the program, for those that start later; `wait` for it, or `never` use it. Workers wait for what they do "
    "in C, unless it is `never`",
    "TELEGRAD_KERNELS": "`1`: `tg.connect()` asks for kernels of the program's own where it is not told whether to",
    "TELEGRAD_LAUNCH_BLOCKING": "`1`: every call waits for its result, so that an error shows on its own line",
    "TELEGRAD_CELL_SECONDS": "how long the end of a notebook's cell waits for its work, to fail in that cell; `0.25`",
    "TELEGRAD_FULL_TRACEBACK": "`1`: tracebacks show the frames of telegrad, too",
}
"""Read by the client library; a server that finds them in its environment keeps quiet about them."""

_ALLOC_OPTION: Final = r"\w+:(\[[^\[\]]*\]|[^,\[\]]+)"
_CUDA_ALLOCATOR: Final = re.compile(r".+:\w+:\w+")
_ORIGIN: Final = re.compile(r"https?://[^/\s]+")
_ALLOC_CONF: Final = re.compile(rf"({_ALLOC_OPTION}(,{_ALLOC_OPTION})*)?")


def _checked_alloc_conf(text: str) -> str:
    text = re.sub(r"\s", "", text)
    if not _ALLOC_CONF.fullmatch(text):
        raise ValueError(f"expected 'option:value,option:value', got {text!r}")
    return text


def _checked_cuda_allocator(text: str) -> str:
    if text and not _CUDA_ALLOCATOR.fullmatch(text):
        raise ValueError(f"expected 'library:alloc:free', got {text!r}")
    return text


def _checked_token(token: SecretStr | None) -> SecretStr | None:
    if token is not None and not (len(token) >= 8 and token.get_secret_value().isascii()):
        raise ValueError("expected at least 8 ASCII characters")
    return token


def _checked_mode(text: str) -> str:
    if not re.fullmatch("0?[0-7]{3}", text):
        raise ValueError(f"expected permissions in octal such as 660, got {text!r}")
    return text


def _checked_owner(text: str) -> str:
    if not re.fullmatch(r"[^:\s]*(:[^:\s]+)?", text):
        raise ValueError(f"expected 'user:group', 'user' or ':group', got {text!r}")
    return text


def _split_origins(value: Any) -> Any:
    return (
        tuple(part.strip().rstrip("/") for part in value.split(",") if part.strip())
        if isinstance(value, str)
        else value
    )


def _checked_origins(origins: tuple[str, ...]) -> tuple[str, ...]:
    for origin in origins:
        if not _ORIGIN.fullmatch(origin):
            raise ValueError(f"expected origins such as https://notebooks.example, got {origin!r}")
    return origins


def _upper(value: Any) -> Any:
    return value.upper() if isinstance(value, str) else value


Origins = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split_origins), AfterValidator(_checked_origins)]
Devices = Annotated[Groups, NoDecode, BeforeValidator(split_groups), AfterValidator(checked_groups)]


def _switch(value: Any) -> Any:
    text = str(value).lower()
    return {"true": "1", "yes": "1", "on": "1", "false": "0", "no": "0", "off": "0"}.get(text, text)


Allowed = Annotated[Literal["0", "1", "shared"], BeforeValidator(_switch)]
LogLevel = Annotated[Literal["DEBUG", "INFO", "WARNING", "ERROR"], BeforeValidator(_upper)]


class Settings(BaseSettings):
    """All settings of the server; immutable."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_ignore_empty=True, frozen=True, validate_default=True)

    host: str = Field(
        "127.0.0.1", min_length=1, description="Address to listen on; beyond loopback a token is required."
    )
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on; `0` picks a free one and prints it.")
    unix_socket: str = Field(
        "",
        description="Path of a Unix socket to listen on as well, for clients on this machine: "
        "`tg.connect('unix:/path')`. `private`: in a new directory that only this user can enter.",
    )
    unix_socket_mode: Annotated[str, AfterValidator(_checked_mode)] = Field(
        "600", description="Permissions of that socket, in octal: who may write to it may connect."
    )
    unix_socket_owner: Annotated[str, AfterValidator(_checked_owner)] = Field(
        "", description="Owner of that socket, as `user:group`, `user` or `:group`, where it is not the server's user."
    )
    token: Annotated[SecretStr | None, AfterValidator(_checked_token)] = Field(
        None, description="Bearer token that clients present. Without one, nor tenants, only loopback is served."
    )
    admin_token: Annotated[SecretStr | None, AfterValidator(_checked_token)] = Field(
        None,
        description="Bearer token of who may see `/metrics` and all memory, which `TELEGRAD_TOKEN` may not then.",
    )
    tenants: str = Field(
        "", description="TOML file with a table per tenant: the SHA-256 of its token, and limits. See docs/tenants.md."
    )
    devices: Devices = Field(
        (),
        description="Devices of the workers, `;` between workers: `cuda:0,cuda:1;cuda:2`, `cpu`, or `all` for one "
        "worker with every GPU. By default each GPU has a worker, or the CPU where there is none.",
    )
    lease_seconds: float = Field(
        60.0, gt=0, le=86400, description="How long a session outlives its connection before its tensors are freed."
    )
    max_lease_seconds: float = Field(
        86400.0, gt=0, le=604800, description="Longest lease that a client may ask for with `tg.connect(lease=...)`."
    )
    drain_seconds: float = Field(
        20.0, ge=0, le=86400, description="How long sessions may go on after SIGTERM before they are closed."
    )
    tls_cert: str = Field(
        "",
        description="PEM file with the certificate of the server and its chain: it speaks https. Read again when it or "
        "the key changes.",
    )
    tls_key: str = Field("", description="PEM file with the certificate's key.")
    allowed_origins: Origins = Field(
        (),
        description="Origins of web pages, such as `https://notebooks.example`, `,` between them, that may talk to the "
        "server from a browser, beside its own pages.",
    )
    max_connections: int = Field(
        768, ge=8, description="Connections that may be open at once; where another comes, an idle one is closed."
    )
    max_connections_per_address: int = Field(
        384, ge=4, description="Connections that one address may have, likewise. Behind a proxy, all come from its own."
    )
    max_sessions: int = Field(64, ge=1, description="Sessions that may be open at once.")
    isolation: Isolation = Field(
        "shared", description="Which sessions share a worker process: all of its devices' (`shared`), those of one "
        "tenant (`tenant`), or none (`session`)."
    )  # fmt: skip
    max_workers: int = Field(
        16, ge=1, description="Worker processes of tenants and of sessions that may run at once, beside shared ones."
    )
    spare_workers: int = Field(
        1, ge=0, le=64, description="Worker processes kept ready for each device group, where workers are not shared."
    )
    session_quota_bytes: ByteSize | None = Field(
        None, gt=0, description="Device memory that one session may hold, such as `8GiB`; its tenant's by default."
    )
    memory_share: float = Field(
        0.9, gt=0, le=1, description="Share of each device's memory that the sessions of one tenant on a worker may "
        "have in use together, where the file of tenants does not say. A private server has `1`."
    )  # fmt: skip
    host_quota_bytes: ByteSize | None = Field(
        None, gt=0, description="Host memory that the sessions of one tenant on a worker may take together besides the "
        "elements of tensors: names, graphs, copies on their way; as much may their requests over HTTP take in the "
        "gateway. By default an eighth of the machine's, or of its control group's, at least 256 MiB and at most "
        "16 GiB."
    )  # fmt: skip
    cpu_memory_bytes: ByteSize | None = Field(
        None, gt=0, description="Memory that all tensors on `cpu` of one worker may take. By default its part of what "
        "the machine or its control group has, less room for the gateway, the workers and `TELEGRAD_HOST_QUOTA_BYTES`."
    )  # fmt: skip
    cpu: bool = Field(
        True, description="Whether sessions may have tensors on `cpu`, too, where they have a GPU; `0` leaves it out."
    )
    allow_kernels: Allowed = Field(
        "0",
        description="Whether sessions may run CUDA kernels of their own, `connect(kernels=True)`: `0` no, `1` yes, "
        "each such session on a worker of its own, `shared` yes, beside others, whose tensors the kernels can reach.",
    )
    programs: str = Field(
        "", description="Directory with exported programs, `name.safetensors` each, that all tenants may call: "
        "`POST /v1/programs/name`. See docs/serving.md."
    )  # fmt: skip
    program_uploads: str = Field(
        "", description="Directory for programs that tenants upload, `PUT /v1/programs/name`; without it they may not."
    )
    program_upload_bytes: ByteSize = Field(
        ByteSize(4 << 30), ge=0, description="Bytes of programs that one tenant may have uploaded, where the file of "
        "tenants does not say."
    )  # fmt: skip
    program_batch: int = Field(
        64, ge=1, le=65536, description="Most rows, along the first dimension, of requests that run as one; `1`: each "
        "request runs alone."
    )  # fmt: skip
    program_wait_seconds: float = Field(
        0.002, ge=0, le=10, description="How long a batch waits for more requests where the last one held several. An "
        "idle program runs at once."
    )  # fmt: skip
    program_queue: int = Field(
        1024,
        ge=1,
        le=1 << 20,
        description="Requests of a tenant that may wait for one program; more are refused with 503.",
    )
    program_idle_seconds: float = Field(
        3600.0, ge=1, description="A program that nobody has called for so long is unloaded until it is called again; "
        "`inf`: none is."
    )  # fmt: skip
    instruction_seconds: float = Field(
        60.0,
        gt=0,
        description="Longest time of one instruction, on the host or a device, which ends its session; `inf`: any.",
    )
    kernel_seconds: float = Field(
        10.0,
        gt=0,
        description="For how long a GPU may get no further with the work of a session that has launched kernels of its "
        "own; then its worker is ended. `inf`: as long as an instruction.",
    )
    operation_work: float | None = Field(
        None, gt=0, description="Multiply-adds of one operation on the CPU, as its shapes tell them before it runs; by "
        "default 2e11 for each core, some ten seconds. `inf`: any."
    )  # fmt: skip
    graph_nodes: float = Field(
        1e6,
        gt=0,
        description="Nodes of the graph of one backward pass, a tenth of them with `create_graph`; `inf`: any.",
    )
    compiled_variants: int = Field(
        256, ge=1, description="In how many situations (shapes, modes) the compiled functions of one session are kept "
        "optimised, with their machine code; those of the one that ran longest ago go first."
    )  # fmt: skip
    slow_seconds: float = Field(
        1.0, ge=0.01, description="From so many seconds on a turn of a session is a line in the log, and in a trace."
    )
    max_frame_bytes: ByteSize = Field(
        ByteSize(8 << 20), ge=2 << 20, le=1 << 30, description="Largest WebSocket frame and largest JSON body."
    )
    alloc_conf: Annotated[str, AfterValidator(_checked_alloc_conf)] = Field(
        "", description="Options of the caching allocator, `option:value,...`, as in `PYTORCH_CUDA_ALLOC_CONF`."
    )
    cuda_allocator: Annotated[str, AfterValidator(_checked_cuda_allocator)] = Field(
        "", description="`library.so:alloc:free`: functions that GPU segments come from, not the driver."
    )
    kernel_cache: str = Field(
        "", description="Directory that compiled kernels are kept in; `~/.cache/telegrad/kernels` by default."
    )
    kernel_cache_bytes: ByteSize = Field(
        ByteSize(DEFAULT_KERNEL_BYTES),
        ge=1 << 20,
        description="Most bytes of compiled kernels for GPUs that are kept there; those not used for longest go first.",
    )
    compiled_kernels: Literal["beside", "wait", "never"] = Field(
        "beside",
        description="Loops of the CPU backend that Numba compiles once per machine, into the kernel cache: a process "
        "`beside` the worker does it while NumPy serves, or operations `wait` for it, or they are `never` used.",
    )
    allow_host_code: Allowed = Field(
        "0",
        description="Whether clients may run C++ of their own in workers: `1` for sessions on a worker of their own or "
        "of their tenant, `shared` on any ([extensions.md](extensions.md)). A private server has `shared`.",
    )
    debug: bool = Field(
        False,
        description="Whether callers get tracebacks of the server and the text of errors that nobody foresaw, which "
        "are in the log otherwise. A private server has `1`.",
    )
    log_level: LogLevel = Field("INFO", description="`DEBUG`, `INFO`, `WARNING` or `ERROR`.")
    ready_fd: int | None = Field(
        None, ge=0, description="File descriptor that gets one line of JSON, `url` and `pid`, once the server is ready."
    )
    parent_fd: int | None = Field(
        None, ge=0, description="File descriptor of a pipe; the server ends when its other end closes."
    )

    @model_validator(mode="after")
    def _token_beyond_loopback(self) -> Settings:
        if self.token is None and not self.tenants and not is_loopback(self.host):
            raise ValueError(
                f"{PREFIX}TOKEN: is required to listen on {self.host}, which is not a loopback address; or tenants "
                f"({PREFIX}TENANTS)"
            )
        return self

    @model_validator(mode="after")
    def _certificate_and_key(self) -> Settings:
        if bool(self.tls_cert) != bool(self.tls_key):
            missing = "TLS_KEY" if self.tls_cert else "TLS_CERT"
            raise ValueError(f"{PREFIX}{missing}: is required, since TLS needs a certificate and its key")
        return self

    @model_validator(mode="after")
    def _lease_within_maximum(self) -> Settings:
        if self.lease_seconds > self.max_lease_seconds:
            raise ValueError(
                f"{PREFIX}MAX_LEASE_SECONDS: {self.max_lease_seconds:g} s is less than the usual lease of "
                f"{self.lease_seconds:g} s ({PREFIX}LEASE_SECONDS)"
            )
        return self

    def limits(self, groups: Sequence[DeviceGroup]) -> Limits:
        """Return what the sessions of each worker may take, where there are workers for these devices."""
        work = self.operation_work or WORK_OF_A_CORE * (os.cpu_count() or 1)
        return Limits(
            self.instruction_seconds, self.kernel_seconds, work, self.graph_nodes, self.slow_seconds,
            self._cpu_memory(groups), self.cpu, self.compiled_variants,
        )  # fmt: skip

    def _cpu_memory(self, groups: Sequence[DeviceGroup]) -> int:
        if self.cpu_memory_bytes is not None:
            return int(self.cpu_memory_bytes)
        workers = len(groups) if self.isolation == "shared" else self.max_workers
        with_gpus = sum(group.gpus > 0 for group in groups) * workers // max(len(groups), 1)
        return default_cpu_memory(workers, with_gpus)

    @property
    def host_quota(self) -> int:
        """What the sessions of a tenant on a worker may take of the host besides elements of tensors, in bytes."""
        return default_host_quota() if self.host_quota_bytes is None else int(self.host_quota_bytes)

    def granted_lease(self, asked: float | None) -> float:
        """Return the lease of a client that asks for so many seconds; ArgumentError where that is too long."""
        if asked is None:
            return self.lease_seconds
        if asked > self.max_lease_seconds:
            raise ArgumentError(
                f"lease: {asked:g} s is longer than this server grants, {self.max_lease_seconds:g} s "
                f"({PREFIX}MAX_LEASE_SECONDS)"
            )
        return asked


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach ``host``; names other than localhost count as reachable."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def load_settings(**overrides: Any) -> Settings:
    """Settings of this process, ``overrides`` first; ``ConfigurationError`` names the variable that is wrong."""
    try:
        return Settings(**overrides)
    except ValidationError as error:
        raise ConfigurationError("; ".join(map(_readable, error.errors(include_url=False)))) from None


def _readable(problem: Any) -> str:
    message = str(problem["msg"]).removeprefix("Value error, ")
    if not problem["loc"]:
        return message
    name = str(problem["loc"][0])
    message = message[:1].lower() + message[1:]
    shown = "" if problem["type"] == "value_error" else f", got {problem['input']!r}"
    return f"{PREFIX}{name.upper()}: {message}{shown}"


def unknown_variables(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Names with our prefix that nothing reads: most likely typing mistakes."""
    known = {PREFIX + name.upper() for name in Settings.model_fields} | CLIENT_VARIABLES.keys()
    return sorted(name for name in environ if name.upper().startswith(PREFIX) and name.upper() not in known)
