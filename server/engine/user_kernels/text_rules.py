"""What a client's CUDA text and compiler options may not do: read the server's files, or write any.

The compiler opens what an ``#include`` names, and its messages quote what it read. So a directive has to name, in
plain sight, a header of CUDA or one that came with the text; and options are those that only change the code.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from telegrad_protocol.errors import ArgumentError, CompilationError

_INCLUDING: Final = re.compile(r"\b(include|include_next|import|embed|__has_include|__has_include_next|__has_embed)\b")
_SPLICE: Final = re.compile(r"\\[ \t]*\r?\n")
_PLAIN: Final = re.compile(
    r"""\s*\#\s*(?:include\s*(?:<(?P<system>[\w./+-]+)>|"(?P<own>[\w./+-]+)")
    |(?:el)?if\s+(?:defined\s*\(\s*__has_include\s*\)|__has_include\s*\(\s*<(?P<asked>[\w./+-]+)>\s*\)))
    \s*(?://.*|/\*(?:(?!\*/).)*\*/\s*)?$""",
    re.VERBOSE,
)
_COMMENT: Final = re.compile(r"\s*//(?!.*\*/)")
"""A line of comment, which does not end one that began before it."""
_BEGINS_DIRECTIVE: Final = re.compile(r"#|%:|\?\?=|\*/|_Pragma")
_OPTION: Final = re.compile(
    r"""(?:
    -[DU]\s*\w+(?:=.*)?
    |--(?:define-macro|undefine-macro)=\w+(?:=.*)?
    |(?:--std|-std)=c\+\+\d\d
    |(?:--use_fast_math|-use_fast_math|--extra-device-vectorization|-extra-device-vectorization|--restrict|-restrict)
    |-{1,2}(?:ftz|prec-div|prec-sqrt|fmad)=(?:true|false)
    |-{1,2}maxrregcount=\d+
    |(?:--generate-line-info|-lineinfo|--device-debug|-G|--device-as-default-execution-space|-default-device)
    |-{1,2}(?:dopt=on|Ofast-compile=\w+|device-int128|device-float128|disable-warnings|w|display-error-number|err-no)
    |-{1,2}(?:diag-(?:error|suppress|warn)|[wde]d)=[\d,]+
    |-{1,2}(?:modify-stack-limit|builtin-move-forward|builtin-initializer-list|extensible-whole-program|ewp)(?:=\w+)?
    |-{1,2}(?:Xptxas|ptxas-options)=-(?:v|O\d|-?(?:allow-expensive-optimizations|dlcm|dscm)=\w+)
    )""",
    re.VERBOSE,
)
MAX_HEADERS: Final = 1024


def check_includes(name: str, text: str) -> None:
    """Refuse directives that name a file of the server's, or that hide what they name."""
    for number, line in enumerate(_SPLICE.sub("", text.replace("\r\n", "\n")).split("\n"), 1):
        word = _INCLUDING.search(line)
        if word is None or not _BEGINS_DIRECTIVE.search(line[: word.start()]) or _COMMENT.match(line):
            continue
        plain = _PLAIN.match(line)
        named = plain and (plain["system"] or plain["own"] or plain["asked"] or "")
        if named is None or named.startswith("/") or ".." in named:
            raise CompilationError(
                f"{name}, line {number}: {line.strip()[:80]}: an #include has to name, by itself on its line, a header "
                "of CUDA or one that was sent along (headers=, or -I with a directory of your own)"
            )


def check_options(options: Iterable[str]) -> tuple[str, ...]:
    """Return the options; refuse those that are not about the code that is generated."""
    checked = tuple(options)
    for option in checked:
        if not _OPTION.fullmatch(option):
            raise ArgumentError(
                f"options: {option!r:.60} is not one that the server's compiler is given; macros, --std, "
                "--use_fast_math, --fmad, --ftz, --prec-div, --prec-sqrt, --maxrregcount, -lineinfo and warnings are"
            )
    return checked
