"""The options are read as PyTorch reads them, and refused by name."""

from __future__ import annotations

import pytest
import torch

from server.allocator import AllocatorConfig
from server.allocator.core.options import options_of_environment, parse_options
from server.allocator.core.sizes import MIB
from telegrad_protocol.errors import ConfigurationError


def test_nothing_set_is_pytorchs_default() -> None:
    assert parse_options("") == AllocatorConfig()


def test_all_options_together() -> None:
    text = (
        "max_split_size_mb:128, max_non_split_rounding_mb:32,garbage_collection_threshold:0.8,"
        "expandable_segments:True,roundup_power2_divisions:4,per_process_memory_fraction:0.5,backend:native,"
        "pinned_use_cuda_host_register:True,pinned_max_round_threshold_mb:16,pinned_max_cached_size_mb:64"
    )
    assert parse_options(text) == AllocatorConfig(
        max_split_size=128 * MIB,
        max_non_split_rounding=32 * MIB,
        garbage_collection_threshold=0.8,
        roundup_power2_divisions=(4,) * 16,
        per_process_memory_fraction=0.5,
        expandable_segments=True,
        pinned_use_cuda_host_register=True,
        pinned_max_round_threshold=16 * MIB,
        pinned_max_cached_size=64 * MIB,
    )


def test_pytorchs_options_of_locks_and_threads_change_nothing() -> None:
    text = "release_lock_on_cudamalloc:True,pinned_use_background_threads:True,pinned_num_register_threads:8"
    assert parse_options(text) == AllocatorConfig()


def test_pytorchs_variables_are_read_where_telegrads_is_not_set() -> None:
    environ = {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64"}
    assert options_of_environment(environ).max_split_size == 64 * MIB
    environ["PYTORCH_ALLOC_CONF"] = "max_split_size_mb:32"
    assert options_of_environment(environ).max_split_size == 32 * MIB
    environ["TELEGRAD_ALLOC_CONF"] = "max_split_size_mb:20"
    assert options_of_environment(environ).max_split_size == 20 * MIB
    with pytest.raises(ConfigurationError, match=r"PYTORCH_ALLOC_CONF.*colour"):
        options_of_environment({"PYTORCH_ALLOC_CONF": "colour:red"})


def test_divisions_by_size() -> None:
    config = parse_options("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]")
    assert config.roundup_power2_divisions == (1,) * 9 + (2, 4) + (8,) * 5
    assert config.round_size(300 * MIB) == 300 * MIB
    assert config.round_size(600 * MIB) == 768 * MIB
    assert config.round_size(1100 * MIB) == 1280 * MIB
    assert config.round_size(2100 * MIB) == 2304 * MIB


@pytest.mark.parametrize(
    ("nbytes", "divisions", "size"),
    [(1, 4, 512), (512, 4, 512), (2048, 4, 2048), (2049, 4, 2560), (1200 * 1024, 4, 1280 * 1024), (4097, 8, 4608)],
)
def test_rounding_to_divisions_of_a_power_of_two(nbytes: int, divisions: int, size: int) -> None:
    assert AllocatorConfig(roundup_power2_divisions=(divisions,) * 16).round_size(nbytes) == size


REFUSED_BY_BOTH = [
    "max_split_size_mb:5",
    "max_non_split_rounding_mb:10",
    "roundup_power2_divisions:3",
    "roundup_power2_divisions:[256:1,512:3]",
    "roundup_power2_divisions:[100:2]",
    "garbage_collection_threshold:0",
    "garbage_collection_threshold:1.0",
    "expandable_segments:true",
    "max_split_size_mb:abc",
]


@pytest.mark.parametrize("text", REFUSED_BY_BOTH)
def test_what_pytorch_refuses_is_refused_by_name(text: str) -> None:
    with pytest.raises((RuntimeError, ValueError)):
        torch._C._accelerator_setAllocatorSettings(text)
    with pytest.raises(ConfigurationError, match=text.partition(":")[0]):
        parse_options(text)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("colour:red", "colour"),
        ("max_split_size_mb", "max_split_size_mb"),
        ("max_split_size_mb:-5", "max_split_size_mb"),
        ("max_split_size_mb:30,,", ","),
        ("backend:cudaMallocAsync", "backend"),
        ("expandable_segments:yes", "expandable_segments"),
        ("per_process_memory_fraction:2", "per_process_memory_fraction"),
        ("garbage_collection_threshold:nan", "garbage_collection_threshold"),
        ("roundup_power2_divisions:[]", "roundup_power2_divisions"),
        ("roundup_power2_divisions:[256]", "roundup_power2_divisions"),
        ("pinned_use_cuda_host_register:1", "pinned_use_cuda_host_register"),
        ("pinned_use_background_threads:1", "pinned_use_background_threads"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(text: str, named: str) -> None:
    with pytest.raises(ConfigurationError, match="TELEGRAD_ALLOC_CONF.*" + named):
        parse_options(text)
