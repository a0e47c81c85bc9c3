"""Connecting: a real local cluster of two processes, and schedulers that aren't there."""

import os
import re
import socket
import subprocess
import sys

import pytest

from cluster import connect, prepare
from tasks.errors import BadInputError


@pytest.fixture(scope="module")
def client():
    with connect("local", 2) as client:
        yield client


def identity():
    import sys

    return os.getpid(), sorted({"pgmpy", "pandas", "numba"} & set(sys.modules))


def listening_addresses(pid):
    """Local addresses on which a process listens, from /proc."""
    inodes = set()
    for descriptor in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{descriptor}")
        except OSError:
            continue
        inodes |= set(re.findall(r"socket:\[(\d+)\]", target))
    found = set()
    for table in ("tcp", "tcp6"):
        with open(f"/proc/{pid}/net/{table}") as file:
            for line in list(file)[1:]:
                words = line.split()
                if words[3] == "0A" and words[9] in inodes:
                    found.add(words[1].split(":")[0])
    return found


def test_two_processes_that_work(client):
    pids = {pid for pid, _ in client.run(identity).values()}
    assert len(pids) == 2
    assert os.getpid() not in pids
    assert client.submit(sum, [1, 2, 3]).result() == 6


def test_workers_import_neither_pgmpy_nor_pandas(client):
    for _, modules in client.run(identity).values():
        assert set(modules) <= {"numba"}


@pytest.mark.skipif(not os.path.isdir("/proc/self/net"), reason="looks into /proc")
def test_nothing_listens_beyond_this_machine(client):
    pids = [os.getpid(), *(pid for pid, _ in client.run(identity).values())]
    for pid in pids:
        # 127.0.0.1 as the kernel prints it, the bytes in reverse.
        assert listening_addresses(pid) == {"0100007F"}


def test_kernels_are_warm_on_every_worker_also_on_later_ones(client):
    def plugins(dask_worker):
        return list(dask_worker.plugins)

    prepare(client)
    client.cluster.scale(3)
    client.wait_for_workers(3)
    try:
        everywhere = client.run(plugins)
        assert len(everywhere) == 3
        assert all(names.count("dask-pgm-warm-up") == 1 for names in everywhere.values())
    finally:
        client.cluster.scale(2)


def test_second_client_by_address_leaves_the_cluster_alone(client):
    address = client.scheduler.address
    for spec in (address, address.removeprefix("tcp://")):
        with connect(spec) as other:
            assert other.submit(sum, [1, 2]).result() == 3
    assert client.submit(sum, [2, 2]).result() == 4


def test_closing_the_client_ends_its_processes_and_a_taken_dashboard_port_is_no_matter(client, recwarn, capfd):
    with connect("local", 1) as other:
        assert other.dashboard_link != client.dashboard_link
        ((pid, _),) = other.run(identity).values()
    with pytest.raises(ProcessLookupError, match="No such process"):
        os.kill(pid, 0)
    assert not recwarn.list
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")


def test_a_configured_scheduler_does_not_stand_in_for_a_local_cluster(monkeypatch):
    import dask

    with dask.config.set({"scheduler-address": "tcp://127.0.0.1:1"}), connect("local", 1) as client:
        assert client.cluster is not None


def refused_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_unreachable(capfd, recwarn):
    address = f"tcp://127.0.0.1:{refused_port()}"
    with pytest.raises(
        BadInputError,
        match=rf"^cannot reach the scheduler at {address}: Connection refused; "
        r"start one with `dask scheduler`, or leave --scheduler out$",
    ):
        connect(address, timeout=0.5)
    with pytest.raises(BadInputError, match=r"cannot reach the scheduler at tcp://no-such-host\.invalid:8786: "):
        connect("tcp://no-such-host.invalid:8786", timeout=0.5)
    with pytest.raises(BadInputError, match=r"cannot reach the scheduler at tls://127\.0\.0\.1:1: "):
        connect("tls://127.0.0.1:1", timeout=0.5)
    assert capfd.readouterr() == ("", "")


def test_a_server_that_never_answers_is_unreachable(capfd):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        with pytest.raises(BadInputError, match=r"no answer from a Dask scheduler within 0\.5 s"):
            connect(f"tcp://127.0.0.1:{server.getsockname()[1]}", timeout=0.5)
    assert capfd.readouterr() == ("", "")


def test_a_scheduler_without_workers():
    from distributed import LocalCluster

    with (
        LocalCluster(n_workers=0, dashboard_address="127.0.0.1:0", silence_logs=50) as lonely,
        pytest.raises(BadInputError, match="has no workers; start some with `dask worker tcp://"),
    ):
        connect(lonely.scheduler_address, timeout=0.5)


@pytest.mark.parametrize("spec", ["", "nonsense", "http://127.0.0.1:80", "tcp://127.0.0.1", "tcp://a b:1", "tcp://:1"])
def test_no_address(spec):
    with pytest.raises(BadInputError, match="is no scheduler address: expected local, tcp://host:port"):
        connect(spec)


@pytest.mark.parametrize("workers", [0, -1, 1.5, True, "2"])
def test_nonsense_number_of_workers(workers):
    with pytest.raises(BadInputError, match="workers: expected a whole number of at least 1, found"):
        connect("local", workers)


def test_workers_go_with_local_only():
    with pytest.raises(BadInputError, match=r"workers: the scheduler at tcp://127\.0\.0\.1:1 has its own"):
        connect("tcp://127.0.0.1:1", workers=2)


def test_importing_the_package_does_not_import_distributed():
    code = "import sys, cluster; sys.exit('distributed' in sys.modules or 'dask' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = __import__("cluster").nothing
