"""The command line: `dask pgm ...`, and the same thing as `dask-pgm ...`.

Dask imports this module for every one of its commands, so only click is imported with it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from pipeline.job import Job

BAD_INPUT, FAILED, NOT_CONVERGED, INTERRUPTED = 2, 1, 3, 130

# As many sub-networks as fit on a screen; all of them are in sub_networks.parquet.
SHOWN = 12

# How click, from 8.2, ends a group without arguments: it shows the help.
_HELP = getattr(click.exceptions, "NoArgsIsHelpError", click.exceptions.Exit)


@contextmanager
def _exit_status() -> Iterator[None]:
    """Turn whatever goes wrong into one line on standard error and an exit status."""
    try:
        yield
    except (click.exceptions.Exit, _HELP):
        raise
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        _end(BAD_INPUT, error.format_message() + (f" Try '{context.command_path} --help'." if context else ""))
    except (KeyboardInterrupt, click.Abort):
        _end(INTERRUPTED, "interrupted")
    except BrokenPipeError:
        # Whoever read the output has gone (`| head`). Python would complain when it flushes at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise click.exceptions.Exit(FAILED) from None
    except Exception as error:
        from tasks.errors import BadInputError, TooLargeError

        if isinstance(error, BadInputError | TooLargeError):
            _end(BAD_INPUT, str(error))
        what = str(error)
        if not type(error).__module__.startswith("tasks."):
            what = f"{type(error).__name__}: {what}" if what else type(error).__name__
        if os.environ.get("DASK_PGM_TRACEBACK") == "1":
            import traceback

            traceback.print_exc()
            _end(FAILED, what)
        _end(FAILED, f"{what} (DASK_PGM_TRACEBACK=1 shows the traceback)")


@contextmanager
def _interrupts_are_heard() -> Iterator[None]:
    """Ctrl-C in the midst of a callback of the garbage collector would be printed and forgotten: send it again."""
    before = sys.unraisablehook

    def hook(unraisable: Any) -> None:
        if unraisable.exc_type is KeyboardInterrupt:
            import _thread

            _thread.interrupt_main()
        else:
            before(unraisable)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = before


def _end(status: int, message: str) -> None:
    click.echo(f"error: {' '.join(message.split())}", err=True)
    raise click.exceptions.Exit(status)


class _Group(click.Group):
    """A group whose errors are one line each, whichever command it is called from."""

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        with _exit_status():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with _exit_status(), _interrupts_are_heard():
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result


@click.group("pgm", cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Learn discrete graphical models from large, incomplete Parquet datasets.

    NETWORK is a file (BIF, XMLBIF, UAI, ...) or the name of an example network such as alarm. DATA is a Parquet file, a
    directory of them, a glob or a URL.
    """


Command = Callable[..., Any]


def _options(*decorators: Callable[[Command], Command]) -> Callable[[Command], Command]:
    def decorate(command: Command) -> Command:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


_network = click.argument("network", metavar="NETWORK")
_data = click.argument("data", metavar="DATA...", nargs=-1, required=True)
_reading = _options(
    click.option(
        "--missing-token", multiple=True, metavar="TEXT", help="A value that means missing, besides null; repeatable."
    ),
    click.option("--weight", metavar="COLUMN", help="How many examples each row stands for."),
)
_names_file = click.option(
    "--names", metavar="FILE|columns", help="Names of the variables, one a line; or take the data's columns' names."
)
_solving = _options(
    click.option("--keep-barren", is_flag=True, help="Keep variables that don't matter to a row's likelihood."),
    click.option("--no-decompose", is_flag=True, help="Solve the network as one problem, for comparison."),
)
_where = _options(
    click.option("--workers", type=int, metavar="N", help="Start a local Dask cluster of N processes."),
    click.option("--scheduler", metavar="ADDRESS", help="Use the Dask cluster at tcp://host:port."),
)
_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


@main.command()
@_network
@click.argument("data", metavar="DATA")
@click.option("--rows", type=int, required=True, help="How many rows.")
@click.option("--partitions", type=int, default=1, show_default=True, help="How many files.")
@click.option("--missing", type=float, metavar="RATE", help="Blank entries with this probability.")
@click.option(
    "--missing-variables",
    type=float,
    metavar="FRACTION",
    help="Blank entries of this fraction of the variables only, drawn at random.",
)
@click.option("--hidden", metavar="FRACTION|NAME,NAME", help="Leave variables out.")
@click.option("--names", metavar="FILE", help="Names of the variables, one a line.")
@click.option("--seed", type=int, default=0, show_default=True, help="The same seed gives the same rows.")
def simulate(
    network: str,
    data: str,
    rows: int,
    partitions: int,
    missing: float | None,
    missing_variables: float | None,
    hidden: str | None,
    names: str | None,
    seed: int,
) -> None:
    """Draw rows from NETWORK and write them to the new directory DATA."""
    if missing_variables is not None and missing is None:
        raise click.UsageError("--missing-variables needs --missing, the probability with which they are blanked.")

    from pipeline.display import note, show_progress
    from pipeline.simulation import simulate as run

    with show_progress() as progress:
        done = run(
            network,
            data,
            rows,
            partitions,
            0.0 if missing is None else missing,
            1.0 if missing_variables is None else missing_variables,
            _hidden(hidden),
            seed,
            names=names,
            progress=progress,
        )
    entries = done.rows * len(done.columns)
    click.echo(
        f"{_n(done.rows, 'row')} of {_n(len(done.columns), 'variable')} in {_n(len(done.files), 'file')} "
        f"under {done.where}"
    )
    if done.missing_variables:
        click.echo(
            f"missing {done.missing_entries / entries:.2%} of the entries, in {', '.join(done.missing_variables)}"
        )
    if done.hidden:
        click.echo(f"hidden {', '.join(done.hidden)}")
    note(f"{done.seconds:.1f} s")


def _hidden(text: str | None) -> float | list[str]:
    """A fraction where it reads as a number, else names."""
    if text is None:
        return []
    try:
        return float(text)
    except ValueError:
        return [name.strip() for name in text.split(",")]


def _n(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


@main.command()
@_network
@_data
@_names_file
@_reading
@_solving
@_json
def plan(
    network: str,
    data: tuple[str, ...],
    names: str | None,
    missing_token: tuple[str, ...],
    weight: str | None,
    keep_barren: bool,
    no_decompose: bool,
    as_json: bool,
) -> None:
    """Show how DATA decomposes NETWORK and what learning will take, without doing it."""
    from pipeline import plan as run
    from pipeline.display import print_json

    result = run(
        network,
        _source(data),
        weight=weight,
        missing_tokens=missing_token,
        decompose=not no_decompose,
        drop_barren=not keep_barren,
        names=names,
    )
    if as_json:
        print_json(result.as_dict())
    else:
        click.echo(str(result))


@main.command()
@_network
@_data
@click.option("--output", metavar="DIR", required=True, help="Directory to write; it appears whole or not at all.")
@click.option(
    "--algorithm",
    metavar="NAME",
    help="Bayesian networks: em, edml, hybrid, gradient (L-BFGS) or cg; auto is em. Markov random fields: lbfgs, cg, "
    "em, edml, ipf or closed-form; auto is closed-form where it applies, else lbfgs.  [default: auto]",
)
@click.option("--prior", type=float, help="Dirichlet exponent: 1 is maximum likelihood, 2 Laplace.  [default: 1.0]")
@click.option("--prior-file", metavar="FILE", help="Exponents by variable or parameter, TOML or JSON.")
@click.option(
    "--estimator", metavar="NAME", help="exact, or of Markov random fields lap or pseudo-likelihood.  [default: exact]"
)
@click.option(
    "--auxiliary", metavar="NAME", help="LAP's structure around a clique: exact, dense or pairwise.  [default: exact]"
)
@click.option("--on-missing", metavar="NAME", help="LAP where values are missing: refuse, or em.  [default: refuse]")
@click.option("--l2", type=float, metavar="LAMBDA", help="Penalty on a Markov random field's log potentials.")
@click.option("--pseudo-count", type=float, metavar="C", help="Examples spread evenly, for a Markov random field.")
@click.option("--damping", type=float, help="Share of the old parameters that EDML keeps at first.  [default: 0.5]")
@click.option("--accelerate", is_flag=True, help="Quasi-Newton steps in EM, where they pay.")
@click.option("--restarts", type=int, help="Starts per sub-network; the best is kept.  [default: 1]")
@click.option("--seed", type=int, help="Seed of the random starts.  [default: 0]")
@click.option("--tolerance", type=float, help="Largest change of a parameter to stop at.  [default: 1e-5]")
@click.option("--max-iterations", type=int, help="Limit per sub-network and start.  [default: 1000]")
@click.option("--start", type=click.Choice(["random", "network"]), help="First parameters.  [default: random]")
@_names_file
@_solving
@_reading
@_where
@click.option("--overwrite", is_flag=True, help="Replace the output directory.")
@_json
def learn(**flags: Any) -> None:
    """Learn NETWORK's parameters from DATA.

    Without --workers or --scheduler everything runs in this process, on threads.
    """
    from pipeline.job import make_job

    flags["json"] = flags.pop("as_json")
    given = {name: value for name, value in flags.items() if value is not None}
    _learn(make_job(given, spell=lambda name: name.upper() if name in ("network", "data") else _flag(name)))


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


@main.command()
@_network
@_data
@_names_file
@_reading
@_json
def score(
    network: str,
    data: tuple[str, ...],
    names: str | None,
    missing_token: tuple[str, ...],
    weight: str | None,
    as_json: bool,
) -> None:
    """Print the log likelihood of DATA under NETWORK."""
    from pipeline import score as run
    from pipeline.display import note, print_json, show_progress

    with show_progress() as progress:
        result = run(
            network, _source(data), weight=weight, missing_tokens=missing_token, names=names, progress=progress
        )
    if as_json:
        print_json(result.as_dict())
    else:
        click.echo(f"log likelihood {result.log_likelihood:.6f} nats")
        click.echo(f"per row        {result.log_likelihood_per_row:.6f} nats, {_n(result.rows, 'row')}")
    for line in result.impossible:
        note(f"impossible: {line}")


@main.command()
@_data
@click.option("--output", metavar="DIR", required=True, help="Directory to write; it appears whole or not at all.")
@click.option("--root", metavar="COLUMN", help="Direct the tree from here.  [default: the most neighbours]")
@click.option("--columns", metavar="A,B,...", help="Take these columns only.")
@click.option("--prior", type=float, default=1.0, help="Dirichlet exponent of the parameters.  [default: 1.0]")
@_reading
@_where
@click.option("--overwrite", is_flag=True, help="Replace the output directory.")
@_json
def structure(
    data: tuple[str, ...],
    output: str,
    root: str | None,
    columns: str | None,
    prior: float,
    missing_token: tuple[str, ...],
    weight: str | None,
    workers: int | None,
    scheduler: str | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Learn a tree over DATA's columns: that of largest likelihood, after Chow and Liu."""
    from pipeline.display import note, print_json, show_progress
    from pipeline.output import check_output

    if workers is not None and scheduler is not None:
        raise click.UsageError("--workers and --scheduler exclude each other: a running scheduler has its own workers.")
    if workers is not None and workers < 1:
        raise click.UsageError(f"--workers: expected a whole number of at least 1, found {workers}.")
    check_output(output, overwrite)
    with ExitStack() as stack:
        client = _connect(stack, workers, scheduler)
        from pipeline import learn_structure as run

        progress = stack.enter_context(show_progress())
        result = run(
            _source(data),
            columns=None if columns is None else [name.strip() for name in columns.split(",")],
            root=root,
            prior=prior,
            weight=weight,
            missing_tokens=missing_token,
            client=client,
            output=output,
            overwrite=overwrite,
            progress=progress,
        )
    if as_json:
        print_json(result.report)
    else:
        _print_structure(result, output)
    for line in result.report["notes"]:
        note(f"note: {line}")
    if not result.converged:
        raise click.exceptions.Exit(NOT_CONVERGED)


@main.command()
@click.argument("job", metavar="JOB.toml")
def run(job: str) -> None:
    """Run the learning job that a TOML file describes.

    Its keys are the flags of `learn`, and network, data and output; relative paths start from its directory.
    """
    from pipeline.job import read_job

    _learn(read_job(job))


@main.command()
@click.option("--output", metavar="DIR", help="Where its files go.  [default: dask-pgm-demo, here]")
@click.option("--rows", type=int, default=200_000, show_default=True, help="How many rows to simulate.")
def demo(output: str | None, rows: int) -> None:
    """Simulate incomplete data from the alarm network, learn from it on a local cluster, and compare."""
    from pipeline.demo import run_demo

    run_demo(output, rows)


def _source(data: tuple[str, ...]) -> str | list[str]:
    return data[0] if len(data) == 1 else list(data)


def _connect(stack: ExitStack, workers: int | None, scheduler: str | None) -> Any:
    """A client of the cluster that was asked for, until the stack ends; None where none was."""
    if workers is None and scheduler is None:
        return None
    from cluster import connect
    from pipeline.display import note

    client = stack.enter_context(connect(scheduler or "local", workers))
    note(f"dashboard: {client.dashboard_link}")
    return client


def _learn(job: Job) -> None:
    """Run a learning job, print what came of it, and end with its status."""
    from pipeline.display import note, print_json, show_progress
    from pipeline.output import check_output

    # learn() refuses this too, but only after a cluster has been started for it.
    check_output(job.output, job.overwrite)
    with ExitStack() as stack:
        client = _connect(stack, job.workers, job.scheduler)
        from pipeline import learn as run

        progress = stack.enter_context(show_progress())
        result = run(
            job.network,
            _source(job.data),
            algorithm=job.algorithm,
            prior=job.prior if job.prior_file is None else job.prior_file,
            damping=job.damping,
            accelerate=job.accelerate,
            restarts=job.restarts,
            seed=job.seed,
            tolerance=job.tolerance,
            max_iterations=job.max_iterations,
            start=job.start,
            drop_barren=not job.keep_barren,
            weight=job.weight,
            missing_tokens=job.missing_token,
            estimator=job.estimator,
            auxiliary=job.auxiliary,
            on_missing=job.on_missing,
            l2=job.l2,
            pseudo_count=job.pseudo_count,
            names=job.names,
            decompose=not job.no_decompose,
            client=client,
            output=job.output,
            overwrite=job.overwrite,
            progress=progress,
        )
    if job.json:
        print_json(result.report)
    else:
        print_result(result, job.output)
    if "log_z" in result.report:
        _note_unbounded(result.report, note)
        if not result.converged and "moment_error" in result.report:
            note(
                f"not converged after {_n(result.report['iterations'], 'iteration')}: moments of data and model differ "
                f"by {result.report['moment_error']:.2g}; raise --max-iterations, or loosen --tolerance"
            )
            raise click.exceptions.Exit(NOT_CONVERGED)
    if not result.converged and "estimator" in result.report["settings"]:
        left = sum(not s.converged for s in result.sub_networks)
        more = "; or raise --max-iterations" if result.report["experimental"] else ""
        note(f"not converged: {left} of {_n(len(result.sub_networks), 'clique')}; a larger --pseudo-count helps{more}")
        raise click.exceptions.Exit(NOT_CONVERGED)
    if not result.converged:
        limit = sum(not s.converged for s in result.sub_networks)
        note(
            f"not converged: {limit} of {_n(len(result.sub_networks), 'sub-network')} stopped at "
            f"{_n(job.max_iterations, 'iteration')}; raise --max-iterations, or loosen --tolerance"
        )
        raise click.exceptions.Exit(NOT_CONVERGED)


def _note_unbounded(report: Mapping[str, Any], note: Callable[[str], None]) -> None:
    unbounded: Mapping[str, int] = report["unbounded"]
    remedy = "--l2" if report["settings"].get("estimator") == "pseudo-likelihood" else "--l2 or --pseudo-count"
    if unbounded:
        entries = sum(unbounded.values())
        names = list(unbounded)
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        note(
            f"{entries} potential{'s' * (entries > 1)} without an example, of {'; '.join(names[:3])}{more}: their best "
            f"value is minus infinity in logarithms; {remedy} keeps them finite"
        )


def print_result(result: Any, output: str) -> None:
    """Print what `learn` found: the job in a few lines, and its largest sub-networks."""
    from pipeline.display import print_table

    report: Mapping[str, Any] = result.report
    known = report["log_likelihood"] is not None
    summary: list[tuple[str, Any]] = [
        ("rows", report["rows"]),
        ("log likelihood", float(result.log_likelihood) if known else "not known: it needs a jointree, complete data"),
        ("per row", float(report["log_likelihood_per_row"]) if known else ""),
        ("converged", bool(result.converged)),
        ("sub-networks", len(result.sub_networks)),
        ("most iterations", report["iterations"]),
    ]
    if "estimator" in report["settings"]:
        summary[-2:] = _local_summary(report)
    elif "log_z" in report:
        summary[-1:] = [
            ("algorithm", report["settings"]["algorithm"]),
            ("iterations", report["iterations"]),
            ("log Z", float(result.log_z)),
            ("treewidth", report["treewidth"]),
        ]
    for key in ("hidden", "ignored_columns"):
        if report.get(key):
            summary.append((key.replace("_", " "), ", ".join(map(str, report[key]))))
    if report.get("unlearnable"):
        names = list(report["unlearnable"])
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        summary.append(("without evidence", f"some parameters of {', '.join(names[:SHOWN])}{more}"))
    print_table("learned", ("", ""), [(k, v if isinstance(v, str) else _show(v)) for k, v in summary])

    if "estimator" in report["settings"]:
        pass  # its problems are many and all alike
    elif "log_z" in report:
        _print_data_terms(result.sub_networks)
    else:
        _print_sub_networks(result.sub_networks)
    click.echo(f"written to {output}")


def _local_summary(report: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """What LAP and pseudo-likelihood have to show."""
    settings = report["settings"]
    summary: list[tuple[str, Any]] = [("estimator", settings["estimator"])]
    if settings["auxiliary"] is not None:
        summary += [
            ("auxiliary", settings["auxiliary"]),
            ("cliques", report["cliques"]),
            ("local problems", report["problems"]),
            ("most variables in one", report["largest_neighbourhood"]),
        ]
    else:
        summary.append(("pseudo log likelihood", float(report["pseudo_log_likelihood"])))
    summary.append(("most iterations", report["iterations"]))
    if report.get("experimental"):
        summary.append(("experimental", report["experimental"]))
    return summary


def _print_data_terms(records: Sequence[Any]) -> None:
    from pipeline.display import print_table

    largest = sorted(records, key=lambda s: (-s.instances, s.variables))[:SHOWN]
    rest = len(records) - len(largest)
    print_table(
        f"the {len(largest)} sub-networks with most instances; {rest} more" if rest else "sub-networks",
        ("variables", "boundary", "instances", "data term"),
        [(_names(s.variables), _names(s.boundary), s.instances, float(s.log_likelihood)) for s in largest],
    )


def _print_sub_networks(records: Sequence[Any]) -> None:
    from pipeline.display import print_table

    largest = sorted(records, key=lambda s: (-s.seconds, s.variables))[:SHOWN]
    rest = len(records) - len(largest)
    print_table(
        f"the {len(largest)} sub-networks that took longest; {rest} more" if rest else "sub-networks",
        ("variables", "boundary", "instances", "iterations", "converged", "log likelihood", "seconds"),
        [
            (
                _names(s.variables),
                _names(s.boundary),
                s.instances,
                s.iterations,
                bool(s.converged),
                float(s.log_likelihood),
                round(float(s.seconds), 4),
            )
            for s in largest
        ],
    )


def _print_structure(result: Any, output: str) -> None:
    """The structure in a few lines, and its strongest edges."""
    from pipeline.display import print_table

    report = result.report
    summary: list[tuple[str, Any]] = [
        ("rows", report["rows"]),
        ("variables", report["variables"]),
        ("edges", report["edges"]),
        ("trees", report["trees"]),
        ("log likelihood", float(result.log_likelihood)),
        ("per row", float(report["log_likelihood_per_row"])),
        ("mutual information", float(report["mutual_information"])),
        ("parameters", report["parameters"]),
    ]
    print_table("structure", ("", ""), [(k, v if isinstance(v, str) else _show(v)) for k, v in summary])
    rest = len(result.edges) - SHOWN
    if result.edges:
        print_table(
            f"the {SHOWN} strongest edges; {rest} more" if rest > 0 else "edges",
            ("parent", "child", "mutual information", "available"),
            [(e.parent, e.child, e.mutual_information, e.available) for e in result.edges[:SHOWN]],
        )
    click.echo(f"written to {output}")


def _names(names: tuple[str, ...]) -> str:
    return " ".join(names[:4]) + (f" +{len(names) - 4}" if len(names) > 4 else "")


def _show(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
