"""The question what a session's programs have become."""

from __future__ import annotations

from telegrad_protocol.queries import SessionQuery


class ProgramReports(SessionQuery, frozen=True):
    """What the session's programs have become, a dict for each number: None where there is no such program.

    ``instructions`` counts its rows; ``specialisations`` has a dict for each situation that it was recorded in:
    ``situation`` in lines of text, ``reason`` why it goes on as instructions there, empty where it is executed as one;
    and then ``steps``, ``kernels_before``, ``kernels_after``, ``bytes_before`` and ``bytes_after``, which count kernels
    and bytes of temporary values without and with fusion, ``fused`` with the names of operations in each fused kernel,
    and ``text``, what is executed and what it was generated from, unless ``with_texts`` is false.
    """

    programs: list[int]
    with_texts: bool = True
