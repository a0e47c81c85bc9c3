"""Word an impossible row for its owner: which states, in which file and row."""

from __future__ import annotations

from pipeline.planning import Job
from pipeline.stages import Reading, read
from tasks.errors import ImpossibleDataError
from tasks.projection import find_row
from tasks.reading import ParquetPart, TablePart, open_parquet


def in_words(
    error: ImpossibleDataError, job: Job, reading: Reading, parameters: str, remedy: str = ""
) -> ImpossibleDataError:
    """The error with state names in place of numbers, and the first such row of the data.

    Parameters
    ----------
    error : ImpossibleDataError
        From a solver, with the codes of the evidence.
    job, reading
        The job it came from.
    parameters : str
        What the message calls the parameters.
    remedy : str
        What to do about it.
    """
    states = dict(zip(job.network.variables, job.network.states, strict=True))
    evidence = ", ".join(f"{name}={(states[name] or ())[code]}" for name, code in error.codes) or "the row"
    missing = f" with {', '.join(error.hidden)} missing" if error.hidden else ""
    text = f"{_where(error, job, reading)}{evidence}{missing} has probability zero under {parameters}"
    return ImpossibleDataError(f"{text}; {remedy}" if remedy else text, error.hidden, error.codes)


def _where(error: ImpossibleDataError, job: Job, reading: Reading) -> str:
    """File and row of the first match, for Parquet and tables: one more pass, in this process, up to that row."""
    number = {c.name: i for i, c in enumerate(reading.columns)}
    codes = [(number[name], code) for name, code in error.codes if name in number]
    hidden = [number[name] for name in error.hidden if name in number]
    for part in job.dataset.parts:
        row = find_row(read(part, reading), codes, hidden)
        if row >= 0:
            return f"{part.name}, row {_before(part) + row}: "
    return ""


def _before(part: ParquetPart | TablePart) -> int:
    """Rows of the file or table that come before a part's."""
    if isinstance(part, TablePart):
        return part.first_row
    with open_parquet(part.path, part.storage_options) as file:
        return sum(file.metadata.row_group(g).num_rows for g in range(part.row_groups[0]))
