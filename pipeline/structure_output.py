"""The files of a learned structure, and its picture."""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipeline.bif import write_bif
from pipeline.output import whole_directory
from pipeline.uai import write_uai

if TYPE_CHECKING:
    from pipeline.structure import StructureResult

# A larger picture says nothing to the eye, and drawing it takes minutes.
MOST_DRAWN = 1000
# Inches a line of text, and a letter.
LINE, LETTER = 0.24, 0.078


def write_structure(result: StructureResult, path: Path, overwrite: bool = False) -> None:
    """Write network.bif, network.uai with variables.txt, mutual_information.parquet, tree.svg and report.json.

    Notes
    -----
    A picture that cannot be drawn is left out, and `result.report["notes"]` says why.
    """
    with whole_directory(path, overwrite) as draft:
        (draft / "network.bif").write_text(write_bif(result.learned), encoding="utf-8")
        (draft / "network.uai").write_text(write_uai(result.undirected), encoding="utf-8")
        names = result.learned.variables
        (draft / "variables.txt").write_text("".join(f"{v}\n" for v in names), encoding="utf-8")
        pq.write_table(result.mutual_information, draft / "mutual_information.parquet")
        try:
            (draft / "tree.svg").write_bytes(draw(result))
        except ImportError:
            result.report["notes"].append("no picture: it needs matplotlib, pip install matplotlib")
        except ValueError as error:
            result.report["notes"].append(f"no picture: {error}")
        text = json.dumps(result.report, indent=2, allow_nan=False, ensure_ascii=False)
        (draft / "report.json").write_text(text + "\n", encoding="utf-8")


def information_table(
    names: Sequence[str],
    information: NDArray[np.float64],
    available: NDArray[Any],
    parents: Sequence[tuple[int, ...]],
) -> pa.Table:
    """A row a pair, strongest first, of equal ones the first by name: what `StructureResult` describes."""
    alphabetical = np.array(sorted(range(len(names)), key=lambda v: names[v]), np.int64)
    first, second = (alphabetical[k] for k in np.triu_indices(len(names), 1))
    order = np.argsort(-information[first, second], kind="stable")
    first, second = first[order], second[order]
    in_tree = np.zeros(information.shape, np.bool_)
    for v, own in enumerate(parents):
        for p in own:
            in_tree[v, p] = in_tree[p, v] = True
    words = pa.array(list(names), pa.string())
    return pa.table(
        {
            "variable_1": pa.DictionaryArray.from_arrays(pa.array(first, pa.int32()), words),
            "variable_2": pa.DictionaryArray.from_arrays(pa.array(second, pa.int32()), words),
            "mutual_information": information[first, second],
            "available": available[first, second],
            "in_tree": in_tree[first, second],
        }
    )


def draw(result: StructureResult) -> bytes:
    """The tree as SVG: roots on the left, an edge the wider the more information it carries. Equal trees, equal bytes.

    Raises
    ------
    ImportError
        matplotlib is not installed.
    ValueError
        There are too many variables for a picture.
    """
    names = result.learned.variables
    if len(names) > MOST_DRAWN:
        raise ValueError(f"{len(names)} variables are more than the {MOST_DRAWN} that one shows")
    import matplotlib
    from matplotlib.figure import Figure

    places = _layout(result.learned.parents)
    # A level is as wide as its longest name, so that no name lies over another.
    depth = {v: level for v, (level, _) in places.items()}
    widths = [max(len(_shown(names[v])) for v in depth if depth[v] == d) for d in range(max(depth.values()) + 1)]
    left = np.concatenate([[0.0], np.cumsum([LETTER * w + 0.8 for w in widths])])
    height = LINE * (1 + max(line for _, line in places.values()))
    figure = Figure(figsize=(float(left[-1]) + 0.2, height + 0.6))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(-0.2, left[-1])
    axes.set_ylim(height + 0.1, -0.5)
    axes.axis("off")
    number = {n: i for i, n in enumerate(names)}
    strongest = max((e.mutual_information for e in result.edges), default=0.0)
    for edge in result.edges:
        (d, a), (_, b) = places[number[edge.parent]], places[number[edge.child]]
        begin = left[d] + LETTER * len(_shown(edge.parent)) + 0.05
        axes.plot(
            [begin, left[d + 1] - 0.3, left[d + 1] - 0.05], [LINE * a, LINE * b, LINE * b], color="#3b6ea5",
            linewidth=0.4 + 4 * edge.mutual_information / strongest, solid_capstyle="round", solid_joinstyle="round",
            alpha=0.7,
        )  # fmt: skip
    for v, (d, line) in places.items():
        axes.text(left[d], LINE * line, _shown(names[v]), va="center", ha="left", fontsize=9, family="monospace",
                  parse_math=False)  # fmt: skip
    if result.edges:
        axes.text(
            0,
            -0.35,
            f"width: mutual information, {strongest:.3g} nats at most",
            va="center",
            fontsize=8,
            color="#555555",
        )
    sink = io.BytesIO()
    # As text, and without a date or random names: equal trees are equal files.
    with matplotlib.rc_context({"svg.hashsalt": "dask-pgm", "svg.fonttype": "none"}), warnings.catch_warnings():
        # Whoever shows the picture has a font of their own.
        warnings.filterwarnings("ignore", "Glyph")
        figure.savefig(sink, format="svg", metadata={"Date": None})
    return sink.getvalue()


def _shown(name: str) -> str:
    # Control characters have no place in SVG.
    name = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in " ".join(name.split()))
    return name if len(name) <= 32 else name[:31] + "…"


def _layout(parents: Sequence[tuple[int, ...]]) -> dict[int, tuple[int, float]]:
    """Each variable's level and line: leaves on lines of their own, a parent in the middle of its children."""
    children: list[list[int]] = [[] for _ in parents]
    for v, own in enumerate(parents):
        for p in own:
            children[p].append(v)
    places: dict[int, tuple[int, float]] = {}
    line = 0.0
    # Without recursion: a chain of a thousand variables is a tree too.
    waiting = [(v, 0, False) for v in reversed(range(len(parents))) if not parents[v]]
    while waiting:
        v, level, done = waiting.pop()
        if not children[v]:
            places[v] = (level, line)
            line += 1
        elif done:
            lines = [places[c][1] for c in children[v]]
            places[v] = (level, (min(lines) + max(lines)) / 2)
        else:
            waiting.append((v, level, True))
            waiting += [(c, level + 1, False) for c in reversed(children[v])]
    return places
