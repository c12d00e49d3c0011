"""Has a program end where the function prints, as in PyTorch, in calls in which that is looked for."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from telegrad._session.own_code import is_own

from .config import dynamo_config


@contextmanager
def ending_programs(active: Any) -> Iterator[None]:
    """End the program of the thread's region, ``active.region``, at each ``print`` of the program's in the block.

    Python tells of calls meanwhile, instead of what else it tells, such as a profiler. Settings of PyTorch's compiler
    say that ``print`` ends nothing.
    """
    settings = dynamo_config.reorderable_logging_functions, dynamo_config.ignore_logging_functions
    if any([print in functions for functions in settings]):
        yield
        return

    def split(frame: Any, event: str, called: Any) -> None:
        region = active.region
        if event == "c_call" and called is print and region is not None and not is_own(frame.f_code.co_filename):
            region.split("print() is called")

    before = sys.getprofile()
    sys.setprofile(split)
    try:
        yield
    finally:
        sys.setprofile(before)
