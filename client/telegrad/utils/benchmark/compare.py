"""A table of measurements: a row for each task, a column for each description, one table for each label."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from .measurement import Measurement, select_unit, trim_sigfig, unit_to_english

_BEST, _GOOD, _BAD, _WORST, _END = "\033[92m\033[1m", "\033[92m", "\033[34m", "\033[91m\033[1m", "\033[0m"
_LEVELS: Final = ((1.05, _BEST), (1.25, _GOOD), (1.5, ""), (2.0, _BAD))
"""Up to which multiple of the fastest of its row or column a time has a colour."""


Key = tuple[int, str, str]
"""A row: threads, environment, name."""
Row = dict[str, Measurement]
"""The measurements of a row, by column."""


class Compare:
    """Measurements side by side. Those of the same row and column are merged."""

    def __init__(self, results: Sequence[Measurement]) -> None:
        self._results: list[Measurement] = []
        self.extend_results(results)
        self._trims = self._warns = False
        self._colours = ""

    def __str__(self) -> str:
        return "\n".join(self._tables())

    def extend_results(self, results: Sequence[Measurement]) -> None:
        """Add measurements; ValueError for anything else."""
        for each in results:
            if not isinstance(each, Measurement):
                raise ValueError(f"Compare: expected Measurement, got {type(each).__name__}")
        self._results.extend(results)

    def trim_significant_figures(self) -> None:
        """Show only the digits that are more than noise."""
        self._trims = True

    def colorize(self, rowwise: bool = False) -> None:
        """Colour times by how they compare with the fastest of their column, or of their row."""
        self._colours = "row" if rowwise else "column"

    def highlight_warnings(self) -> None:
        """Mark times whose middle half is wider than a tenth of the median, and say by how much."""
        self._warns = True

    def print(self) -> None:
        """Print the tables."""
        print(str(self))

    def _tables(self) -> list[str]:
        merged = Measurement.merge(self._results)
        labels = dict.fromkeys(each.task_spec.label or "" for each in merged)
        return [self._table(label, [m for m in merged if (m.task_spec.label or "") == label]) for label in labels]

    def _table(self, label: str, measured: list[Measurement]) -> str:
        unit, scale = select_unit(min(each.median for each in measured))
        columns = list(dict.fromkeys(each.task_spec.description or "" for each in measured))
        rows: dict[Key, Row] = {}
        for each in sorted(measured, key=lambda m: m.task_spec.num_threads):
            key = each.task_spec.num_threads, each.task_spec.env or "", each.as_row_name
            rows.setdefault(key, {})[each.task_spec.description or ""] = each
        digits = {column: self._digits(rows.values(), column, scale) for column in columns}
        texts = {
            key: [self._cell(row, rows.values(), c, scale, digits[c]) for c in columns] for key, row in rows.items()
        }
        widths = [max(len(column), *[len(cells[n]) for cells in texts.values()]) for n, column in enumerate(columns)]
        lines = self._lines(rows, texts, columns, widths)
        width = max(map(len, lines))
        body = [self._shown(line, width) for line in lines]
        painted = self._painted(body, list(rows.values()), columns)
        heading = f" {label} ".center(width - 2, "-") if label else "-" * (width - 2)
        end = f"Times are in {unit_to_english(unit)}s ({unit}).\n"
        return "\n".join([f"[{heading}]", *painted, "", end.rstrip("\n"), *self._legend(measured), ""])

    def _digits(self, rows: Iterable[Row], column: str, scale: float) -> int:
        """How many digits the times of a column have behind the point."""
        found = [row[column] for row in rows if column in row]
        if not self._trims:
            return 1
        return max(min(each.significant_figures - len(str(int(each.median / scale))) for each in found), 0)

    def _cell(self, row: Row, rows: Iterable[Row], column: str, scale: float, digits: int) -> str:
        found = row.get(column)
        if found is None:
            return ""
        value, share = found.median / scale, found.iqr / found.median
        mark = ""
        if self._warns and any(one[column].has_warnings for one in rows if column in one):  # points stand below points
            mark = f" (! {share * 100:.0f}%)" if found.has_warnings else " " * len("(! XX%)")
        return f"{trim_sigfig(value, found.significant_figures) if self._trims else value:.{digits}f}{mark}"

    def _legend(self, measured: list[Measurement]) -> list[str]:
        is_marked = self._warns and any(each.has_warnings for each in measured)
        return ["(! XX%) Measurement has high variance, where XX is the IQR / median * 100."] if is_marked else []

    @staticmethod
    def _lines(rows: dict[Key, Row], texts: dict[Key, list[str]], columns: list[str], widths: list[int]) -> list[str]:
        """The heading of the columns, and for each number of threads a line that is filled up and its rows."""
        names = {key: f"({key[1]})  {key[2]}" if key[1] else key[2] for key in rows}
        longest = max(map(len, names.values()))
        lines = [f"{'':{longest + 6}}  |  " + "  |  ".join(c.center(w) for c, w in zip(columns, widths, strict=True))]
        threads = None
        for key in rows:
            if key[0] != threads:
                threads = key[0]
                lines.append(f"{threads} threads: ")
            cells = "  |  ".join(text.rjust(width) for text, width in zip(texts[key], widths, strict=True))
            lines.append(f"      {names[key]:{longest}}  |  {cells}")
        return lines

    @staticmethod
    def _shown(line: str, width: int) -> str:
        return line.ljust(width, "-") if line.endswith(" threads: ") else line

    def _painted(self, lines: list[str], rows: Sequence[Row], columns: list[str]) -> list[str]:
        """The lines with colours, where these are wanted."""
        if not self._colours:
            return lines
        fastest = {c: min(row[c].median for row in rows if c in row) for c in columns}
        wanted, painted = iter(rows), []
        for line in lines:
            if line.startswith("      ") and line is not lines[0]:
                row = next(wanted)
                best = min(each.median for each in row.values())
                bounds = {c: best if self._colours == "row" else fastest[c] for c in columns}
                line = _paint(line, row, columns, bounds)
            painted.append(line)
        return painted


def _paint(line: str, row: Row, columns: list[str], bounds: dict[str, float]) -> str:
    name, *cells = line.split("  |  ")
    for number, column in enumerate(columns):
        if column in row:
            share = row[column].median / bounds[column]
            colour = next((code for most, code in _LEVELS if share <= most), _WORST)
            cells[number] = f"{colour}{cells[number]}{_END}" if colour else cells[number]
    return "  |  ".join([name, *cells])
