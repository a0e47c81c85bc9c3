"""Parquet to learned parameters against pyarrow reading the same columns: alarm, one worker process with one thread.

    python -m tests.benchmarks.reading [--rows 10000000] [--files 16] [--rounds 3]

Reading is `ParquetFile(f, read_dictionary=…).read(columns, use_threads=False)` of every file, in turn with `learn` on a
cluster that is already up and warm, in one run; medians and the ratio are printed.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import tempfile
import time
from pathlib import Path

import pyarrow.parquet as pq

from cluster import connect
from pipeline import learn, load_network, simulate


def read_alone(files: list[Path], columns: list[str]) -> float:
    """Seconds that pyarrow takes to decode the columns as dictionaries on one thread."""
    began = time.perf_counter()
    for file in files:
        pq.ParquetFile(file, read_dictionary=columns).read(columns=columns, use_threads=False)
    return time.perf_counter() - began


def peak_memory() -> int:
    """Bytes that this process has held at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def compare(rows: int, files: int, rounds: int) -> dict[str, float]:
    """Run both in turn; medians in seconds, their ratio, and the worker's peak memory in MiB."""
    network = load_network("alarm")
    with tempfile.TemporaryDirectory() as directory:
        simulate(
            network, Path(directory) / "data", rows=rows, partitions=files, missing=0.5, missing_variables=0.2, seed=1
        )
        paths = sorted((Path(directory) / "data").glob("*.parquet"))
        reading, learning = [], []
        with connect("local", workers=1) as client:
            learn(network, paths[:1], client=client)
            for _ in range(rounds):
                reading.append(read_alone(paths, list(network.variables)))
                began = time.perf_counter()
                learn(network, paths, client=client)
                learning.append(time.perf_counter() - began)
            memory = max(client.run(peak_memory).values())
    read, learned = statistics.median(reading), statistics.median(learning)
    return {"read": read, "learn": learned, "ratio": learned / read, "worker_mib": memory / 2**20}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--files", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    result = compare(options.rows, options.files, options.rounds)
    print(
        f"{options.rows:,} rows in {options.files} files: pyarrow alone {result['read']:.2f} s, "
        f"learn {result['learn']:.2f} s, "
        f"ratio {result['ratio']:.2f}; the worker held {result['worker_mib']:.0f} MiB at most"
    )
