"""What the inputs and outputs of an exported program are: its parameters and buffers, and what callers give and get."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, TypeAlias

__all__ = [
    "ArgumentSpec", "ConstantArgument", "ExportGraphSignature", "InputKind", "InputSpec", "OutputKind", "OutputSpec",
    "SymIntArgument", "TensorArgument",
]  # fmt: skip


@dataclass(frozen=True)
class TensorArgument:
    """A tensor of the graph, by name."""

    name: str


@dataclass(frozen=True)
class SymIntArgument:
    """A size of the graph, by name."""

    name: str


@dataclass(frozen=True)
class ConstantArgument:
    """A number, a text or None that is fixed in the program."""

    name: str
    value: int | float | bool | str | None


ArgumentSpec: TypeAlias = TensorArgument | SymIntArgument | ConstantArgument


class InputKind(Enum):
    """What a placeholder of the graph is."""

    USER_INPUT = auto()
    PARAMETER = auto()
    BUFFER = auto()
    CONSTANT_TENSOR = auto()


class OutputKind(Enum):
    """What an output of the graph is."""

    USER_OUTPUT = auto()
    BUFFER_MUTATION = auto()
    PARAMETER_MUTATION = auto()
    USER_INPUT_MUTATION = auto()


@dataclass(frozen=True)
class InputSpec:
    """A placeholder; ``target`` is the path of a parameter, buffer or constant."""

    kind: InputKind
    arg: ArgumentSpec
    target: str | None
    persistent: bool | None = None

    def __str__(self) -> str:
        target = "" if self.target is None else f" target={self.target!r}"
        persistent = "" if self.persistent is None else f" persistent={self.persistent}"
        return f"{self.arg.name}: {self.kind.name}{target}{persistent}"


@dataclass(frozen=True)
class OutputSpec:
    """An output; ``target`` is the path of the buffer, or the input, that the program writes to."""

    kind: OutputKind
    arg: ArgumentSpec
    target: str | None

    def __str__(self) -> str:
        target = "" if self.target is None else f" target={self.target!r}"
        return f"{self.arg.name}: {self.kind.name}{target}"


@dataclass
class ExportGraphSignature:
    """All placeholders and outputs of a program."""

    input_specs: list[InputSpec] = field(default_factory=list)
    output_specs: list[OutputSpec] = field(default_factory=list)

    def _targets(self, kind: InputKind) -> tuple[str, ...]:
        return tuple([spec.target for spec in self.input_specs if spec.kind is kind and spec.target is not None])

    def _by_name(self, kind: InputKind) -> Mapping[str, str]:
        return {s.arg.name: s.target for s in self.input_specs if s.kind is kind and s.target is not None}

    @property
    def parameters(self) -> tuple[str, ...]:
        """The paths of the parameters."""
        return self._targets(InputKind.PARAMETER)

    @property
    def buffers(self) -> tuple[str, ...]:
        """The paths of the buffers."""
        return self._targets(InputKind.BUFFER)

    @property
    def non_persistent_buffers(self) -> tuple[str, ...]:
        """The paths of the buffers that a state dict does not have."""
        specs = [spec for spec in self.input_specs if spec.kind is InputKind.BUFFER and spec.persistent is False]
        return tuple([spec.target for spec in specs if spec.target is not None])

    @property
    def lifted_tensor_constants(self) -> tuple[str, ...]:
        """The names of the constants."""
        return self._targets(InputKind.CONSTANT_TENSOR)

    @property
    def user_inputs(self) -> tuple[Any, ...]:
        """The names of what callers give, and the values of constants among it."""
        specs = [spec.arg for spec in self.input_specs if spec.kind is InputKind.USER_INPUT]
        return tuple([arg.value if isinstance(arg, ConstantArgument) else arg.name for arg in specs])

    @property
    def user_outputs(self) -> tuple[Any, ...]:
        """The names of what callers get, and the values of constants among it."""
        specs = [spec.arg for spec in self.output_specs if spec.kind is OutputKind.USER_OUTPUT]
        return tuple([arg.value if isinstance(arg, ConstantArgument) else arg.name for arg in specs])

    @property
    def inputs_to_parameters(self) -> Mapping[str, str]:
        """The paths of the parameters by the names of their placeholders."""
        return self._by_name(InputKind.PARAMETER)

    @property
    def inputs_to_buffers(self) -> Mapping[str, str]:
        """The paths of the buffers by the names of their placeholders."""
        return self._by_name(InputKind.BUFFER)

    @property
    def inputs_to_lifted_tensor_constants(self) -> Mapping[str, str]:
        """The names of the constants by the names of their placeholders."""
        return self._by_name(InputKind.CONSTANT_TENSOR)

    @property
    def buffers_to_mutate(self) -> Mapping[str, str]:
        """The paths of the buffers that the program writes to, by the names of what it writes."""
        specs = [spec for spec in self.output_specs if spec.kind is OutputKind.BUFFER_MUTATION]
        return {spec.arg.name: spec.target for spec in specs if spec.target is not None}

    @property
    def user_inputs_to_mutate(self) -> Mapping[str, str]:
        """The inputs that the program writes to, by the names of what it writes."""
        specs = [spec for spec in self.output_specs if spec.kind is OutputKind.USER_INPUT_MUTATION]
        return {spec.arg.name: spec.target for spec in specs if spec.target is not None}

    def __str__(self) -> str:
        lines = ["# inputs", *map(str, self.input_specs), "", "# outputs", *map(str, self.output_specs)]
        return "\n".join(lines)
