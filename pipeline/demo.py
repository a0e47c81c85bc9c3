"""The demonstration: simulate incomplete data, plan, learn on a local cluster, compare with the truth."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline.network import Network
from tasks.errors import BadInputError
from tasks.sampling import CHUNK, draw_rows, make_sampler

NETWORK, SEED, PARTITIONS = "alarm", 0, 8
MISSING, MISSING_VARIABLES = 0.5, 0.2

# A parent configuration seen this often has parameters known to about 1/sqrt(OFTEN), 0.03: an error far above that
# would be the learner's, not the sample's.
OFTEN = 1000


@dataclass(frozen=True)
class Recovery:
    """How far learned parameters are from the true ones.

    Attributes
    ----------
    mean : float
        Mean absolute error of a parameter, each row of a table weighted by how often it occurs in the data.
    largest : float
        Largest absolute error over the rows that occur at least `OFTEN` times.
    where : str
        The variable that has it.
    rows_seen, rows : int
        Rows of the network's tables that occur in the data, and all of them.
    """

    mean: float
    largest: float
    where: str
    rows_seen: int
    rows: int


def run_demo(output: str | None, rows: int) -> None:
    """Run the demonstration and print each step.

    Parameters
    ----------
    output : str or None
        Directory for its files; None for `dask-pgm-demo` in the current directory, or the first free name of
        `dask-pgm-demo-2`, `-3`, ...
    rows : int
        How many rows to simulate.

    Raises
    ------
    BadInputError
        `output` exists and isn't empty, or `rows` is less than the number of partitions.
    """
    from cluster import connect
    from pipeline.cli import print_result
    from pipeline.display import note, print_table, show_progress
    from pipeline.learning import learn
    from pipeline.networks import bayesian, load_network
    from pipeline.planning import plan
    from pipeline.scoring import score
    from pipeline.simulation import simulate

    begin = time.perf_counter()
    if rows < PARTITIONS:
        raise BadInputError(f"rows: the demonstration needs at least {PARTITIONS}, found {rows}")
    truth = bayesian(load_network(NETWORK), "the demonstration")
    where = _make_directory(output)
    data, learned = str(where / "data"), str(where / "learned")
    try:
        print(f"1. simulate {rows} rows of {NETWORK} ({len(truth.variables)} variables) in {PARTITIONS} partitions")
        with show_progress() as progress:
            simulation = simulate(
                truth, data, rows, PARTITIONS, MISSING, MISSING_VARIABLES, seed=SEED, progress=progress
            )
        print(f"   half the entries missing in {', '.join(simulation.missing_variables)}")
        print("\n2. plan", flush=True)
        print(plan(truth, data))
        print("\n3. learn, on a local Dask cluster")
        print("   its workers compile the kernels first: half a minute once, no time when run again", flush=True)
        # Two processes show what there is to show, and keep the demonstration small on large machines.
        with connect("local", min(2, os.cpu_count() or 1)) as client:
            print(f"   dashboard: {client.dashboard_link}", flush=True)
            with show_progress() as progress:
                result = learn(truth, data, seed=SEED, client=client, output=learned, progress=progress)
        print_result(result, learned)
        print("\n4. compare with the network that the data was drawn from", flush=True)
        recovery = compare(bayesian(result.learned, "the demonstration"), truth, rows, SEED)
        true_score, learned_score = score(truth, data), score(result.network, data)
        print_table(
            "learned against true",
            ("", ""),
            [
                ("mean absolute error of a parameter", f"{recovery.mean:.5f}"),
                (
                    f"largest, where the parents' states occur {OFTEN} times",
                    f"{recovery.largest:.5f} ({recovery.where})",
                ),
                ("table rows that occur in the data", f"{recovery.rows_seen} of {recovery.rows}"),
                ("log likelihood per row, true parameters", f"{true_score.log_likelihood_per_row:.6f}"),
                ("log likelihood per row, learned parameters", f"{learned_score.log_likelihood_per_row:.6f}"),
            ],
        )
    except BaseException:
        shutil.rmtree(where, ignore_errors=True)
        raise
    note(f"{time.perf_counter() - begin:.1f} s")
    print(f"\nThe data and what was learned are in {where}")


def compare(learned: Network, truth: Network, rows: int, seed: int) -> Recovery:
    """Compare two networks of the same structure, table row by table row.

    Parameters
    ----------
    learned, truth : Network
        Variables, parents and states may be in different orders.
    rows, seed : int
        Of the dataset that `simulate` drew from `truth`: it is drawn again, this time complete, to count how often
        each row of the tables was used.
    """
    counts = _count_families(truth, rows, seed)
    error_sum = weight_sum = 0.0
    largest, where = 0.0, "-"
    for i, variable in enumerate(truth.variables):
        table = truth.tables[i]
        assert table is not None
        error = np.abs(_aligned_table(learned, truth, i) - table)
        error_sum += float((counts[i][..., None] * error).sum())
        weight_sum += float(counts[i].sum()) * table.shape[-1]
        often = error[counts[i] >= OFTEN]
        if often.size and often.max() > largest:
            largest, where = float(often.max()), variable
    return Recovery(
        mean=error_sum / weight_sum,
        largest=largest,
        where=where,
        rows_seen=sum(int((c > 0).sum()) for c in counts),
        rows=sum(c.size for c in counts),
    )


def _aligned_table(learned: Network, truth: Network, i: int) -> NDArray[np.float64]:
    """The learned table of the truth's variable i, its axes and states in the truth's order."""
    j = learned.variables.index(truth.variables[i])
    table = learned.tables[j]
    assert table is not None
    axes = [learned.variables[p] for p in learned.parents[j]]
    members = [*truth.parents[i], i]
    table = table.transpose([*(axes.index(truth.variables[p]) for p in truth.parents[i]), len(axes)])
    for axis, v in enumerate(members):
        have = learned.states[learned.variables.index(truth.variables[v])]
        want = truth.states[v]
        assert have is not None
        assert want is not None
        table = table.take([have.index(s) for s in want], axis=axis)
    return table


def _count_families(truth: Network, rows: int, seed: int) -> list[NDArray[np.int64]]:
    """How often each parent configuration occurs in the complete dataset, shaped as the tables without last axis."""
    tables = [t for t in truth.tables if t is not None]
    sampler = make_sampler(truth.topological_order, truth.parents, tables)
    counts: list[NDArray[np.int64]] = [np.zeros(t.shape[:-1], np.int64) for t in tables]
    for first in range(0, rows, CHUNK):
        codes = sampler.make_codes(min(CHUNK, rows - first))
        draw_rows(sampler, seed, first, codes)
        for i, parents in enumerate(truth.parents):
            offsets = np.zeros(codes.shape[1], np.int64)
            for p, stride in zip(parents, sampler.strides[i], strict=True):
                offsets += stride * codes[p]
            counts[i] += np.bincount(offsets, minlength=counts[i].size).reshape(counts[i].shape)
    return counts


def _make_directory(output: str | None) -> Path:
    if output is not None:
        if not output:
            raise BadInputError("--output: expected a directory, found an empty name")
        path = Path(output).absolute()
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise BadInputError(f"{output} exists and is not an empty directory; name another, or remove it")
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as cause:
            raise BadInputError(f"cannot write to {output}: {cause.strerror}") from cause
        return path
    number = 1
    while True:
        path = Path.cwd() / ("dask-pgm-demo" if number == 1 else f"dask-pgm-demo-{number}")
        try:
            path.mkdir()
        except FileExistsError:
            number += 1
        except OSError as cause:
            raise BadInputError(f"cannot write to {path}: {cause.strerror}") from cause
        else:
            return path
