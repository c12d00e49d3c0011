"""Writes the schemas of PyTorch's operators, which telegrad's stand under the same names, to a text: one a line.

    python -m conformance.aten_schemas

They are the interface of ``torch.ops.aten``: names, overloads, arguments, defaults and aliases, in PyTorch's order.
"""

from __future__ import annotations

from pathlib import Path

import torch

TABLE = Path(__file__).resolve().parents[1] / "client/telegrad/_library/aten_schemas.txt"


def schemas() -> list[str]:
    """Return the schemas of all operators of tensors, without the namespace."""
    every = [schema for schema in torch._C._jit_get_all_schemas() if schema.name.startswith("aten::")]
    names = dict.fromkeys(schema.name for schema in every if _is_of_tensors(schema))
    lines = []
    for name in sorted(names):
        in_order = torch._C._jit_get_schemas_for_operator(name)
        lines += [str(schema).removeprefix("aten::") for schema in in_order]
    return lines


def _is_of_tensors(schema: torch.FunctionSchema) -> bool:
    return any(isinstance(item.type.containedTypes()[0] if item.type.containedTypes() else item.type, torch.TensorType)
               for item in (*schema.arguments, *schema.returns))  # fmt: skip


def main() -> None:
    """Write the table."""
    TABLE.write_text("\n".join(schemas()) + "\n")


if __name__ == "__main__":
    main()
