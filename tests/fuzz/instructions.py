"""Instructions of every kind with any values: what their types admit, mostly names of what frames have made before."""

from __future__ import annotations

import random
import typing
from functools import cache
from typing import Any

import msgspec
from msgspec import inspect

from telegrad_protocol import messages
from telegrad_protocol.programs.messages import DefineProgram, RunProgram
from telegrad_protocol.queries import QUERIES

from .mutation import FLOATS, IDS, NUMBERS, WORDS, random_value

_KINDS = (*typing.get_args(messages.Instruction), DefineProgram, RunProgram)
_MODES = ("grad", "inference", "autocast", "autocast_cache")
_MOST_ITEMS = 4


def random_instruction(rng: random.Random) -> list[Any]:
    """An instruction as it travels, most of whose fields are of the types that it wants."""
    kind = rng.choice(_KINDS)
    if kind is messages.Query and QUERIES and rng.random() < 0.7:
        return _query(rng)
    values = [_field(rng, field) for field in _type_of(kind).fields]
    if kind is messages.Mode and rng.random() < 0.7:
        values[0] = rng.choice(_MODES)
    return [_type_of(kind).tag, *values]


def _query(rng: random.Random) -> list[Any]:
    """A request to the session, with the arguments that it takes."""
    name = rng.choice(sorted(QUERIES))
    arguments = [_field(rng, field) for field in _type_of(QUERIES[name]).fields]
    return [_type_of(messages.Query).tag, rng.choice(IDS), name, arguments]


@cache
def _type_of(struct: type[msgspec.Struct]) -> Any:
    return inspect.type_info(struct)


def _field(rng: random.Random, field: inspect.Field) -> Any:
    return _of_type(rng, field.type) if rng.random() < 0.95 else random_value(rng)


def _of_type(rng: random.Random, wanted: inspect.Type) -> Any:
    match wanted:
        case inspect.IntType():
            return rng.choice(IDS[:5]) if rng.random() < 0.7 else rng.choice(IDS + NUMBERS)
        case inspect.BoolType():
            return rng.random() < 0.5
        case inspect.FloatType():
            return rng.choice(FLOATS)
        case inspect.StrType():
            return rng.choice(WORDS)
        case inspect.BytesType():
            return rng.randbytes(rng.randrange(40))
        case inspect.NoneType():
            return None
        case inspect.LiteralType():
            return rng.choice(wanted.values)
        case inspect.UnionType():
            return _of_type(rng, rng.choice(wanted.types))
        case inspect.StructType():
            return _of_struct(rng, wanted)
        case _:
            return _of_items(rng, wanted)


def _of_struct(rng: random.Random, wanted: inspect.StructType) -> Any:
    values = [_of_type(rng, field.type) for field in wanted.fields]
    if wanted.array_like:
        return values if wanted.tag is None else [wanted.tag, *values]
    return dict(zip([field.encode_name for field in wanted.fields], values, strict=True))


def _of_items(rng: random.Random, wanted: inspect.Type) -> Any:
    count = range(rng.randrange(_MOST_ITEMS))
    match wanted:
        case inspect.TupleType():
            return [_of_type(rng, item) for item in wanted.item_types]
        case inspect.ListType() | inspect.VarTupleType():
            return [_of_type(rng, wanted.item_type) for _ in count]
        case inspect.DictType():
            return {_of_type(rng, wanted.key_type): _of_type(rng, wanted.value_type) for _ in count}
        case _:
            return random_value(rng)
