"""What the command line shows: progress on standard error, tables and JSON on standard output."""

from __future__ import annotations

import json
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

# Seconds between two plain lines about the same stage: a log file should not grow with the number of tasks.
INTERVAL = 5.0


# Called with a stage's name, how much of it is done, and how much there is.
Progress = Callable[[str, int, int], None]


@contextmanager
def show_progress() -> Iterator[Progress]:
    """Show progress on standard error: bars on a terminal, otherwise a plain line `stage done/total` now and then.

    Yields
    ------
    callable (stage, done, total) -> None
        May be called from any thread.
    """
    if sys.stderr.isatty():
        with _bars() as progress:
            yield progress
    else:
        yield _Lines()


@contextmanager
def _bars() -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, Any] = {}
        lock = threading.Lock()

        def progress(stage: str, done: int, total: int) -> None:
            with lock:
                if stage not in tasks:
                    tasks[stage] = bars.add_task(stage, total=total)
                bars.update(tasks[stage], completed=done, total=total)

        yield progress


class _Lines:
    """Progress as plain lines every few seconds; a job that is over before says nothing, nor gets in an error's way."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = time.monotonic()

    def __call__(self, stage: str, done: int, total: int) -> None:
        with self._lock:
            now = time.monotonic()
            if now - self._last < INTERVAL:
                return
            self._last = now
            note(f"{stage} {done}/{total}")


def note(text: str) -> None:
    """Print a line on standard error."""
    print(text, file=sys.stderr, flush=True)


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table on standard output: drawn by rich on a terminal, plain aligned columns elsewhere.

    Parameters
    ----------
    title : str
        Printed above it.
    columns : sequence of str
        Headings; all empty for a table without any.
    rows : sequence of sequences
        Cells; numbers are set right.
    """
    cells = [[_word(c) for c in row] for row in rows]
    is_number = [
        all(isinstance(row[k], int | float) and not isinstance(row[k], bool) for row in rows)
        for k in range(len(columns))
    ]
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(title=Text(title), title_justify="left", show_header=any(columns))
        for heading, right in zip(columns, is_number, strict=True):
            table.add_column(Text(heading), justify="right" if right else "left", overflow="fold")
        for row in cells:
            # As Text: a variable may have brackets in its name, which rich would take for markup.
            table.add_row(*map(Text, row))
        Console().print(table)
        return
    print(title)
    lines = [list(columns), *cells] if any(columns) else cells
    widths = [max(len(line[k]) for line in lines) for k in range(len(columns))] if lines else []
    for line in lines:
        words = [
            word.rjust(width) if right else word.ljust(width)
            for word, width, right in zip(line, widths, is_number, strict=True)
        ]
        print(("  " + "  ".join(words)).rstrip())


def print_json(document: Any) -> None:
    """Print one JSON document on standard output; numbers that JSON has no word for become null."""
    print(json.dumps(_plain(document), indent=2, ensure_ascii=False))


def _word(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.6g}" if abs(value) < 1e5 or not math.isfinite(value) else f"{value:,.1f}"
    return str(value)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(v) for v in value]
    if value is None or isinstance(value, str | bool):
        return value
    if hasattr(value, "tolist"):  # numpy, without importing it
        return _plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, int) else str(value)
