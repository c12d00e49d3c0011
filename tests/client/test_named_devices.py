"""Devices as programs name them: those of the host and of shapes may have an index, which their tensors do not have."""

from __future__ import annotations

from typing import Any

import pytest

from telegrad_protocol.errors import ArgumentError
from telegrad_protocol.meta import Device

from .twins import assert_same, evaluate

NAMED = [
    "'cpu:3'", "'cpu', 3", "'cpu:0'", "'cpu'", "'meta:1'", "'meta'", "'cuda:1'", "'cuda'", "t.device('cpu:2')",
    "device='cpu:1'", "device=t.device('meta')", "type='cuda', index=1",
]  # fmt: skip


@pytest.mark.parametrize("named", NAMED)
def test_a_device_keeps_its_index(named: str, tg: Any) -> None:
    program = f"""
    device = t.device({named})
    same = device == t.device({named}), hash(device) == hash(t.device({named})), device == t.device(device.type)
    device.type, device.index, str(device), repr(device), same
    """
    assert_same(*evaluate(program, tg))


MADE = [
    "t.ones(2, device=d)", "t.tensor([1.0], device=d)", "t.ones(2).to(d)", "t.ones(2).to(t.device(d))",
    "t.empty_like(t.ones(2), device=d)", "t.ones(2).new_ones(2, device=d)", "t.nn.Linear(2, 2, device=d).weight",
    "t.nn.Linear(2, 2).to(d).weight", "t.ones(2, device=d) + t.ones(2, device=d)",
    "t.ones(2, device=t.device(d)).to(d)",
    "t.zeros(2, device=d).new_empty(3).copy_(t.ones(3, device=d))",
]  # fmt: skip


@pytest.mark.parametrize("place", ["cpu:3", "cpu:0", "meta:1"])
@pytest.mark.parametrize("made", MADE)
def test_tensors_made_there_have_no_index(made: str, place: str, tg: Any) -> None:
    assert_same(*evaluate(f"d = {place!r}\nmade = {made}\nstr(made.device), tuple(made.shape)", tg))


@pytest.mark.parametrize("place", ["cpu:3", "meta:1"])
def test_a_default_device_keeps_its_index(place: str, tg: Any) -> None:
    program = f"""
    with t.device({place!r}):
        within = str(t.get_default_device()), str(t.ones(2).device)
    t.set_default_device({place!r})
    after = str(t.get_default_device()), str(t.ones(2).device)
    t.set_default_device(None)
    within, after
    """
    assert_same(*evaluate(program, tg))


OTHERS = [
    "'cpu:'", "'cpu:-1'", "'cpu:01'", "'cpu:1', 1", "'cpu', -1", "'cpu', '1'", "1.5", "", "device='cpu', index=1",
    "'cpu', device='cpu'",
]  # fmt: skip


@pytest.mark.parametrize("words", OTHERS)
def test_other_words_name_no_device(words: str, tg: Any) -> None:
    program = f"""
    try:
        t.device({words})
    except TypeError:
        kind = "a type"
    except RuntimeError:
        kind = "a value"
    kind
    """
    assert_same(*evaluate(program, tg))


def test_the_types_that_there_are_can_be_read_from_the_error(tg: Any) -> None:
    program = """
    try:
        t.device("notadevice")
    except RuntimeError as error:
        types = str(error).split("Expected one of ")[1].split(" device type")[0].split(", ")
    made = []
    for kind in types:
        try:
            made.append(t.empty(0, device=t.device(kind, index=0)).device)
        except Exception:
            pass
    made
    """
    assert_same(*evaluate(program, tg))


@pytest.mark.parametrize("name", ["cuda:128", "cpu:999", "meta:12345", "xpu:" + "9" * 50])
def test_indices_beyond_pytorchs_name_no_device_and_are_not_kept(name: str, tg: Any) -> None:
    known = len(Device._known)
    with pytest.raises(ArgumentError, match="up to 127"):
        tg.device(name)
    assert len(Device._known) == known and tg.device("cuda:127").index == 127
