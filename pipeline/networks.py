"""Where networks come from: files, the example networks' names, pgmpy models.

pgmpy takes 1.5 s to import, so it is imported only where its reader is needed.
"""

from __future__ import annotations

import difflib
import gzip
import importlib.util
import os
import re
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

from pipeline.bif import read_bif
from pipeline.markov import AnyNetwork, MarkovNetwork
from pipeline.models import from_pgmpy, is_pgmpy
from pipeline.names import with_names
from pipeline.network import Network
from pipeline.uai import read_uai
from pipeline.xmlbif import Element, parse_xml, read_xmlbif
from tasks.errors import BadInputError

_FORMATS_READ = "BIF (.bif), XMLBIF (.xml, .xmlbif, .bifxml), UAI (.uai) and GeNIe's XDSL (.xdsl), each also with .gz"
_NOT_READ = {
    # pgmpy's reader drops decision and utility nodes and files that are cut off, and takes continuous nodes for
    # discrete and a missing `data` for that of the next node, all without a word.
    ".net": "Hugin's NET files are not read, as pgmpy's reader loses parts of them without saying so",
}


def load_network(source: object, *, names: object = None) -> AnyNetwork:
    """Network from a file, an example's name or a model.

    Parameters
    ----------
    source : Network, MarkovNetwork, str, path or pgmpy model
        A `Network` or `MarkovNetwork` comes back as it is. A string or path names a file (its suffix tells the
        format), else an example network that pgmpy ships (`alarm`); a file wins over an example. A URL (`s3://...`) is
        opened with fsspec. A model is a pgmpy DiscreteBayesianNetwork, with all its CPDs or with none, a
        DiscreteMarkovNetwork or a FactorGraph.
    names : str, path or sequence of str, optional
        What to call the variables, in their order: a text file with a name a line (see `pipeline.names.read_names`),
        or the names themselves. UAI files have none, and theirs are x0, x1, ... otherwise.

    Returns
    -------
    Network, or MarkovNetwork where the file or model is undirected.

    Raises
    ------
    BadInputError
        There is no such file or example, the format is not read, or the content is wrong; the names are not as many
        as the variables, or not all different.
    """
    network = _load(source)
    return network if names is None else with_names(network, names)


def bayesian(network: AnyNetwork, what_for: str) -> Network:
    """A network that is a Bayesian one.

    Raises
    ------
    BadInputError
        It is a Markov random field, for which there is no `what_for` (a noun) yet.
    """
    if isinstance(network, MarkovNetwork):
        raise BadInputError(
            f"network {network.name} is a Markov random field; {what_for} takes Bayesian networks only so far"
        )
    return network


def _load(source: object) -> AnyNetwork:
    if isinstance(source, (Network, MarkovNetwork)):
        return source
    if isinstance(source, (str, os.PathLike)):
        return _from_location(os.fsdecode(source))
    if is_pgmpy(source):
        return from_pgmpy(source)
    raise BadInputError(
        f"expected a network as a file, the name of an example network or a pgmpy model, found {type(source).__name__}"
    )


def example_networks() -> dict[str, Path]:
    """Files of the example networks in pgmpy's installation, by name; pgmpy is not imported.

    Raises
    ------
    BadInputError
        pgmpy is not installed or ships no examples.
    """
    spec = importlib.util.find_spec("pgmpy")  # of a top-level package: finds it and runs none of it
    folders = [Path(p) / "utils" / "example_models" for p in (spec.submodule_search_locations or [])] if spec else []
    found = {p.name.removesuffix(".bif.gz"): p for folder in folders for p in sorted(folder.glob("*.bif.gz"))}
    if not found:
        where = f"in {folders[0]}" if folders else "as pgmpy is not installed"
        raise BadInputError(f"there are no example networks {where}: install pgmpy 1.x, or name a file")
    return found


def _from_location(location: str) -> AnyNetwork:
    if "://" in location:
        return _parse(location, location.rpartition("/")[2], lambda: _fetch(location))
    path = Path(location)
    if os.path.isfile(location):
        return _parse(location, path.name, path.read_bytes)
    suffix = _split(path.name)[1]
    if path.name != location or suffix in _READERS or suffix in _NOT_READ:
        raise BadInputError(
            f"network {location}: there is no such file{', only a directory' if os.path.isdir(location) else ''}"
        )
    examples = example_networks()
    if location not in examples:
        close = difflib.get_close_matches(location[:40].lower(), examples, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(close)}?" if close else f"they are {', '.join(examples)}"
        raise BadInputError(
            f"network {location[:80]!r}: there is no such file, nor an example network of that name ({hint});"
            f" formats read: {_FORMATS_READ}"
        )
    return _parse(str(examples[location]), examples[location].name, examples[location].read_bytes)


def _fetch(url: str) -> bytes:
    import fsspec

    with fsspec.open(url, "rb") as file:
        content: bytes = file.read()
    return content


def _split(file_name: str) -> tuple[str, str]:
    """Stem and lower-case suffix of a file's name, `.gz` apart."""
    plain = file_name[:-3] if file_name.lower().endswith(".gz") else file_name
    stem, suffix = os.path.splitext(plain)
    return stem, suffix.lower()


def _parse(location: str, file_name: str, read: Callable[[], bytes]) -> AnyNetwork:
    stem, suffix = _split(file_name)
    if suffix not in _READERS:
        why = _NOT_READ.get(suffix, f"{suffix or 'a file without a suffix'} is no known format")
        raise BadInputError(f"network {location}: {why}; formats read: {_FORMATS_READ}")
    try:
        content = read()
        # Some tools and downloads leave .gz off or on regardless of the content, so the first bytes decide.
        if content.startswith(b"\x1f\x8b"):
            content = gzip.decompress(content)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadInputError(f"network {location}: the gzip data is cut off or damaged ({error})") from error
    except Exception as error:  # whatever a file system, local or remote, makes of it
        raise BadInputError(f"network {location}: it can't be read ({_one_line(error)})") from error
    return _READERS[suffix](_decode(content, location), stem, where=location)


def _decode(content: bytes, location: str) -> str:
    declared = re.match(rb"""<\?xml[^>]*?encoding\s*=\s*["']([\w.-]+)""", content[:200])
    encoding = declared[1].decode() if declared else "utf-8"
    try:
        return content.decode("utf-8-sig" if encoding.lower() in ("utf-8", "utf8") else encoding)
    except (UnicodeDecodeError, LookupError) as error:
        raise BadInputError(f"network {location}: expected {encoding} text ({_one_line(error)})") from error


def _read_xdsl(text: str, name: str, *, where: str | None = None) -> Network:
    """Network that a GeNIe file describes, read by pgmpy; what pgmpy would drop in silence is refused first."""
    where = name if where is None else where
    root = parse_xml(text, where)
    if root.tag != "smile":
        root.fail("<smile>", f"<{root.tag}>")
    # pgmpy reads <cpt> nodes only: deterministic, noisy, decision, utility and dynamic parts would be left out.
    root.only("properties", "nodes", "extensions")
    nodes = root.one("nodes")
    nodes.only("cpt")
    # aGrUM lets the first parent change fastest in a table, GeNIe and pgmpy the last: read alike, one would be wrong.
    writers = [g.attributes.get("app", "") for e in root.all("extensions") for g in e.all("genie")]
    if any(w.startswith("aGrUM") for w in writers):
        root.fail(
            "tables in GeNIe's order", "a file by aGrUM, which orders them otherwise: save the network as BIF there"
        )
    declared: dict[str, list[str]] = {}
    for node in nodes.children:
        node.one("probabilities").leaf()
        variable = _id(node)
        if variable in declared:
            node.fail("a new variable", f"{variable!r} again")
        declared[variable] = [_id(s) for s in node.all("state")]
    try:
        from pgmpy.readwrite import XDSLReader

        model = XDSLReader(string=text).get_model()
    except Exception as error:  # it fails in many ways, none of them about the file
        raise BadInputError(f"{where}: pgmpy's XDSL reader can't take it ({_one_line(error)})") from error
    try:
        network = from_pgmpy(model)
    except BadInputError as error:
        raise BadInputError(f"{where}: {error}") from None
    assert isinstance(network, Network)  # XDSLReader makes nothing else
    read = dict(zip(network.variables, network.states, strict=True))
    if read != {v: tuple(s) for v, s in declared.items()}:
        raise BadInputError(f"{where}: pgmpy's XDSL reader lost variables or states of it")
    return network


def _id(element: Element) -> str:
    if not element.attributes.get("id"):
        element.fail(f'<{element.tag} id="...">', "no id")
    return element.attributes["id"]


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]


_READERS: Mapping[str, Callable[..., AnyNetwork]] = {
    ".bif": read_bif,
    ".xml": read_xmlbif,
    ".xmlbif": read_xmlbif,
    ".bifxml": read_xmlbif,
    ".xdsl": _read_xdsl,
    ".uai": read_uai,
}
