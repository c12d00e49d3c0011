"""What PyTorch's database of operators says must be refused: with its class of error and its words."""

from __future__ import annotations

import re
from typing import Any

import pytest
from torch.testing._internal.common_methods_invocations import op_db

from conformance.entry import _arguments, _call, _leaves
from conformance.scope import reason
from conformance.served import sharing_memory

WORDED_OTHERWISE = {
    "amax", "amin", "aminmax", "as_strided_scatter", "complex", "dsplit", "empty_permuted", "eye", "fliplr",
    "flipud", "gather", "gradient", "hsplit", "index_add", "linspace", "linspace.tensor_overload", "logspace",
    "logspace.tensor_overload", "mean", "multinomial", "narrow", "narrow_copy", "neg",
    "nn.functional.adaptive_max_pool1d", "nn.functional.adaptive_max_pool2d", "nn.functional.adaptive_max_pool3d",
    "nn.functional.avg_pool3d", "nn.functional.conv1d", "nn.functional.conv2d", "nn.functional.conv3d",
    "nn.functional.linear_cross_entropy", "nn.functional.linear_cross_entropy.chunked",
    "nn.functional.linear_cross_entropy.chunked_none", "nn.functional.max_pool1d",
    "nn.functional.multi_margin_loss", "nn.functional.soft_margin_loss", "nn.functional.triplet_margin_loss",
    "ormqr", "roll", "vsplit", "signal.windows.general_cosine",
}  # fmt: skip
"""Entries of which some refusal has words of ours alone, most of them about types under PyTorch's internal names."""


def _name(info: Any) -> str:
    return f"{info.name}.{info.variant_test_name}".rstrip(".")


ENTRIES = {
    _name(info): info
    for info in op_db
    if info.error_inputs_func is not None and not reason(info.name) and _name(info) not in WORDED_OTHERWISE
}


def _refusal(call: Any) -> Exception | None:
    try:
        results = call()
        for leaf in _leaves(results):
            if hasattr(leaf, "tolist"):
                leaf.tolist()
    except Exception as error:
        return error
    return None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ENTRIES)
def test_refusals_are_of_pytorchs_class_and_in_its_words(tg: Any, name: str) -> None:
    info = ENTRIES[name]
    for case, same in zip(info.error_inputs("cpu"), info.error_inputs("cpu"), strict=True):
        given = same.sample_input
        theirs = _refusal(lambda given=given: info.op(given.input, *given.args, **given.kwargs))
        if theirs is None:  # the database is wrong
            continue
        with sharing_memory():
            args, kwargs = _arguments(case.sample_input)
        ours = _refusal(lambda args=args, kwargs=kwargs: _call(info, info.op, *args, **kwargs))
        assert isinstance(ours, type(theirs)), (ours, theirs)
        assert re.search(case.error_regex, str(ours).replace("telegrad.", "torch.")), (str(ours), case.error_regex)


def test_entries_that_are_worded_otherwise_exist() -> None:
    assert {_name(info) for info in op_db} >= WORDED_OTHERWISE
