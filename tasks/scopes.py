"""Count whole small scopes at once: rows become distinct projected rows before anything else looks at them.

    codes ──► one histogram over a scope of several sub-networks ──► its distinct rows with counts ──► each sub-network

A scope's rows are numbered in mixed radix (a missing value is one more digit), so that one pass of additions and one
increment a row serve all the families in it. Families and instances are then counted on a few thousand distinct rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.kernel import kernel
from tasks.subnetwork import Ints, SubNetwork

# Entries of a histogram that several sub-networks share: 128 KiB stays in the nearest caches (measured, 2^11 to 2^16).
MAX_ENTRIES = 1 << 14
# A sub-network alone may have a larger one: a random increment still costs less than looking a row up in a hash table.
MAX_ALONE = 1 << 17
# How many open scopes a sub-network is tried against: keeps packing linear in the number of sub-networks.
OPEN_SCOPES = 16
BLOCK = 4096


@dataclass(frozen=True)
class Scope:
    """Sub-networks that are counted in one histogram.

    Attributes
    ----------
    columns : int32 array, shape (n_columns,)
        Rows of a partition's codes; empty where the sub-network is too wide and is counted from the rows themselves.
    radices : int32 array, shape (n_columns,)
        Digits of each column: its states, and one for missing where it may miss.
    lifts : int32 array, shape (n_columns,)
        One where the column may miss: there -1 is digit zero.
    members : tuple of int
        The sub-networks' numbers.
    sub_networks : tuple of SubNetwork
        The same sub-networks, their columns numbered within the scope.
    """

    columns: Ints
    radices: Ints
    lifts: Ints
    members: tuple[int, ...]
    sub_networks: tuple[SubNetwork, ...]


def pack_scopes(sub_networks: Sequence[SubNetwork], max_entries: int = MAX_ENTRIES) -> tuple[Scope, ...]:
    """Put sub-networks together into few scopes of at most `max_entries` possible rows each.

    Each joins the open scope that grows least by it, or opens one; where it is too wide for any histogram, or
    `max_entries` is 0, it stays alone, without columns.
    """
    scopes: list[tuple[dict[int, int], list[int]]] = []  # radix by column, members
    wide: list[int] = []
    for k, s in enumerate(sub_networks):
        own = {
            int(c): int(states) + int(missing)
            for c, states, missing in zip(s.columns, s.cardinalities, s.may_miss, strict=True)
            if c >= 0
        }
        best, least = None, float(max_entries + 1)
        for scope in scopes[-OPEN_SCOPES:]:
            size = _product({**scope[0], **own}.values(), max_entries)
            # Growth, not size: what a scope holds already is paid for.
            if size <= max_entries and size / _product(scope[0].values(), max_entries) < least:
                best, least = scope, size / _product(scope[0].values(), max_entries)
        if best is not None:
            best[0].update(own)
            best[1].append(k)
        elif max_entries and _product(own.values(), MAX_ALONE) <= MAX_ALONE:
            scopes.append((own, [k]))
        else:
            wide.append(k)
    packed = [_make_scope(radices, members, sub_networks) for radices, members in scopes]
    none = np.empty(0, np.int32)
    alone = [Scope(none, none, none, (k,), (sub_networks[k],)) for k in wide]
    return (*packed, *alone)


def _product(factors: Any, limit: int) -> int:
    size = 1
    for f in factors:
        size *= f
        if size > limit:
            break
    return size


def _make_scope(radices: dict[int, int], members: list[int], sub_networks: Sequence[SubNetwork]) -> Scope:
    columns = sorted(radices)
    number = {c: i for i, c in enumerate(columns)}
    lifts = np.zeros(len(columns), np.int32)
    local = []
    for k in members:
        s = sub_networks[k]
        own = np.array([number.get(int(c), -1) for c in s.columns], np.int32)
        lifts[own[s.may_miss & (own >= 0)]] = 1
        local.append(replace(s, columns=own))
    digits = np.array([radices[c] for c in columns], np.int32)
    return Scope(np.array(columns, np.int32), digits, lifts, tuple(members), tuple(local))


@kernel
def _histogram(codes, weights, columns, radices, lifts, counts):
    n_rows = codes.shape[1]
    weighted = weights.shape[0] > 0
    keys = np.empty(BLOCK, np.int32)
    for begin in range(0, n_rows, BLOCK):
        n = min(BLOCK, n_rows - begin)
        for r in range(n):
            keys[r] = 0
        for k in range(columns.shape[0]):
            column = codes[columns[k], begin : begin + n]
            radix, lift = radices[k], lifts[k]
            for r in range(n):
                keys[r] = keys[r] * radix + lift + np.int32(column[r])
        if weighted:
            for r in range(n):
                counts[keys[r]] += weights[begin + r]
        else:
            for r in range(n):
                counts[keys[r]] += 1


def distinct_rows(codes: NDArray[Any], weights: NDArray[Any], scope: Scope) -> tuple[NDArray[Any], NDArray[Any]]:
    """The distinct rows of a scope's columns and how many examples each stands for.

    Parameters
    ----------
    codes : int8, int16 or int32 array, shape (n_columns, n_rows)
        A partition's.
    weights : int64 or float64 array, shape (n_rows,) or (0,)
        Empty where each row stands for one.
    scope : Scope
        Not a wide one.

    Returns
    -------
    codes : array of the same type, shape (scope's columns, n_distinct)
        In order of the mixed-radix number; -1 is missing.
    counts : array of the weights' type, shape (n_distinct,)
    """
    counts: NDArray[Any] = np.zeros(int(np.prod(scope.radices, dtype=np.int64)), weights.dtype)
    _histogram(codes, weights, scope.columns, scope.radices, scope.lifts, counts)
    keys = np.flatnonzero(counts)
    out = np.empty((len(scope.columns), len(keys)), codes.dtype)
    rest = keys
    for k in range(len(scope.columns) - 1, -1, -1):
        out[k] = rest % int(scope.radices[k]) - int(scope.lifts[k])
        rest = rest // int(scope.radices[k])
    return out, counts[keys]
