"""What schemas must be like whose operators are marked as in-place, or as writing into ``out`` arguments."""

from __future__ import annotations

from telegrad_protocol.errors import ArgumentError

from .types import Argument, FunctionSchema


def _shares(result: Argument, argument: Argument) -> bool:
    mine, other = result.alias_info, argument.alias_info
    return mine is not None and other is not None and mine.is_write and mine.before_set == other.before_set


def check_out_schema(schema: FunctionSchema) -> None:
    """Raise ArgumentError unless the operator writes into keyword-only tensors, and returns these in their order."""
    written = [argument for argument in schema.arguments if argument.is_write]
    start = "Schema tagged with torch.Tag.out"
    if not written:
        raise ArgumentError(f"{start} must have at least one mutable argument. Got: {schema}")
    positional = [argument.name for argument in written if not argument.kwarg_only]
    if positional:
        raise ArgumentError(
            f"{start} requires all mutable arguments to be keyword-only (after the *). Found mutable positional args: "
            f"{positional}. Got: {schema}"
        )
    others = [argument.name for argument in written if argument.type.kind != "Tensor"]
    if others:
        raise ArgumentError(
            f"{start} only supports Tensor mutable arguments. Found unsupported mutable args: {others}. Got: {schema}"
        )
    if len(schema.returns) != len(written):
        raise ArgumentError(
            f"{start} must return all mutable arguments (got {len(written)} mutable args but {len(schema.returns)} "
            f"returns). Got: {schema}"
        )
    for place, (result, argument) in enumerate(zip(schema.returns, written, strict=True)):
        if not _shares(result, argument):
            raise ArgumentError(
                f"Return {place} of schema tagged with torch.Tag.out must alias mutable arg '{argument.name}'. Got: "
                f"{schema}"
            )


def check_inplace_schema(schema: FunctionSchema) -> None:
    """Raise ArgumentError unless the operator writes into its first argument alone, a tensor, and returns that."""
    start = "Schema tagged with torch.Tag.inplace"
    first = schema.arguments[0] if schema.arguments else None
    if first is None or first.kwarg_only:
        raise ArgumentError(f"{start} must have at least one positional argument. Got: {schema}")
    if not first.is_write:
        raise ArgumentError(f"{start} requires the first positional argument to be mutable. Got: {schema}")
    if first.type.kind != "Tensor":
        raise ArgumentError(
            f"{start} requires the first positional argument to be a Tensor. Got type '{first.type}' for arg "
            f"'{first.name}'. Got: {schema}"
        )
    if len(schema.returns) != 1 or not _shares(schema.returns[0], first):
        raise ArgumentError(f"{start} must return the first mutable argument. Got: {schema}")
    others = [argument.name for argument in schema.arguments[1:] if argument.is_write]
    if others:
        raise ArgumentError(
            f"{start} must only mutate the first positional argument. Found additional mutable args: {others}. Got: "
            f"{schema}"
        )
