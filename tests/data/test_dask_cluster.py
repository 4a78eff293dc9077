"""Work given to a Dask cluster: the same files as one machine makes, in the same order, whatever dies meanwhile."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from toy import double, doubled

pytest.importorskip("distributed", reason="needs Dask: pip install 'admin_nmt[cluster]'")

from distributed import LocalCluster

from admin_nmt.data import dask_cluster
from admin_nmt.data.arrow_cache import for_each, jobs_run_by
from admin_nmt.data.cleaning import CleaningOptions
from admin_nmt.data.dask_cluster import Cluster
from admin_nmt.decoding.synthesis import synthesize
from admin_nmt.decoding.worker_processes import one_after_the_other


@pytest.fixture(scope="module")
def address():
    """Two workers that are threads of this process."""
    options = {"processes": False, "n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with LocalCluster(**options) as local:
        yield local.scheduler_address


@pytest.fixture
def cluster(address):
    with Cluster(address) as opened:
        yield opened


def contents(folder):
    return {path.name: path.read_bytes() for path in Path(folder).glob("*.arrow")}


def test_shards_have_the_bytes_that_one_machine_writes(cluster, small_shards, tmp_path):
    assert doubled(tmp_path / "one")["n"][:] == list(range(0, 2000, 2))
    with jobs_run_by(cluster.run):
        assert doubled(tmp_path / "two")["n"][:] == list(range(0, 2000, 2))
    assert len(contents(tmp_path / "one")) == 10
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_a_job_runs_where_relative_names_mean_the_same(cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Cluster(cluster.address) as from_there:
        assert list(from_there.run(lambda item: Path(f"{item}.txt").write_text("done"), [1, 2])) == [4, 4]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1.txt", "2.txt"]


def test_an_error_of_a_job_is_the_error_of_the_step(cluster):
    def refuse(item):
        raise ValueError(f"train.en: line {item} is not valid UTF-8")

    with jobs_run_by(cluster.run), pytest.raises(ValueError, match="line 7 is not valid UTF-8"):
        for_each(refuse, [7], desc="reading")


def shout():
    def translate(lines):
        time.sleep(0.2 * ("line 0" in lines))  # the first chunk is done last
        return [line.upper() for line in lines]

    return translate


def test_chunks_come_in_their_order(cluster):
    given = [[f"line {number}", "b"] for number in range(50)]
    assert list(cluster.in_order(shout)([])) == []
    assert list(cluster.in_order(shout)(given)) == [(chunk, [line.upper() for line in chunk]) for chunk in given]


def test_no_more_chunks_are_taken_than_the_workers_need(cluster):
    taken = []
    parts = cluster.in_order(shout)(taken.append(number) or [f"{number}"] for number in range(100))
    next(parts)
    assert len(taken) <= dask_cluster.AHEAD * 2 + 1
    parts.close()


def test_what_was_translated_before_a_fault_is_given(cluster):
    def load():
        return lambda lines: [str(1 // int(line)) for line in lines]

    parts = cluster.in_order(load)([["1"], ["2"], ["0"]])
    assert [written for _, written in (next(parts), next(parts))] == [["1"], ["0"]]
    with pytest.raises(ZeroDivisionError):
        next(parts)


def synthetic(folder, in_order):
    folder.mkdir()
    (folder / "mono.txt").write_text("".join(f"line {number} of the text\n" for number in range(57)))
    options = {"generates": "source", "settings": {}, "filters": CleaningOptions(drop_copies=False), "chunk_size": 5}
    synthesize(in_order, [folder / "mono.txt"], folder / "pairs.tsv", **options)
    return (folder / "pairs.tsv").read_bytes()


def test_synthetic_pairs_are_those_of_one_machine(cluster, tmp_path):
    assert synthetic(tmp_path / "one", one_after_the_other(shout())) == synthetic(
        tmp_path / "two", cluster.in_order(shout)
    )


def test_a_cluster_that_cannot_do_the_work_is_refused(address, tmp_path, monkeypatch):
    for where, folders, named in ((tmp_path / "nothing", [], "nothing"), (address, [tmp_path / "absent"], "absent")):
        with pytest.raises(ValueError, match=named):
            Cluster(str(where), folders).__enter__()
    monkeypatch.setattr(dask_cluster, "_differences", lambda paths, packages: ["has pyarrow 1.0"])
    with pytest.raises(ValueError, match=r"pyarrow 1\.0"):
        Cluster(address).__enter__()


@pytest.fixture
def workers_file(tmp_path):
    """The scheduler's file of a cluster whose scheduler and two workers are processes of their own."""
    file, processes = tmp_path / "workers.json", []
    environment = os.environ | {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *sys.path])

    def start(*arguments):
        command = [sys.executable, "-m", "dask", *arguments, "--scheduler-file", str(file), "--no-dashboard"]
        options = {"env": environment, "cwd": tmp_path, "stderr": subprocess.DEVNULL, "start_new_session": True}
        processes.append(subprocess.Popen(command, **options))

    start("scheduler", "--port", "0")
    for _ in range(2):
        start("worker", "--nthreads", "1", "--memory-limit", "0", "--local-directory", str(tmp_path))
    while not file.exists():
        time.sleep(0.1)
    yield file
    for process in processes:  # with the processes that each has started
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def die_once(batch):
    if 150_000 in batch["n"].to_pylist() and not Path("died").exists():
        Path("died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return double(batch)


def die(item):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
def test_the_work_of_a_killed_worker_is_done_by_another(workers_file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Cluster(str(workers_file), [tmp_path]) as cluster:
        while cluster.workers() < 2:
            time.sleep(0.1)
        with jobs_run_by(cluster.run):
            doubled(tmp_path / "two", die_once, count=350_000)
        assert Path("died").exists()
        doubled(tmp_path / "one", count=350_000)
        assert len(contents(tmp_path / "one")) == 4
        assert contents(tmp_path / "one") == contents(tmp_path / "two")
        with pytest.raises(OSError, match="several workers were killed over the same part"):
            list(cluster.run(die, [1]))


@pytest.mark.slow
def test_prepare_leaves_the_cache_of_one_machine(workers_file, tmp_path):
    def prepare(cache, *options):
        command = [sys.executable, "-m", "admin_nmt", "prepare", "phrasebook", "--data.cache_dir", cache, *options]
        subprocess.run(command, cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
        return {path.relative_to(tmp_path / cache): path.read_bytes() for path in (tmp_path / cache).rglob("*.arrow")}

    alone = prepare("one")
    assert len(alone) >= 8
    assert alone == prepare("two", "--cluster", str(workers_file))
