"""Jobs from TOML files."""

import dataclasses

import pytest

from pipeline.job import Job, make_job, read_job
from tasks.errors import BadInputError

LEAST = 'network = "alarm"\ndata = "rows"\noutput = "out"\n'


def write(tmp_path, text):
    path = tmp_path / "job.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_defaults_are_those_of_learn(tmp_path):
    job = read_job(write(tmp_path, LEAST))
    assert job == Job("alarm", (str(tmp_path / "rows"),), str(tmp_path / "out"))
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign"):
        job.seed = 3


def test_every_key_with_underscores_or_dashes(tmp_path):
    text = (
        LEAST.replace('"rows"', '["a.parquet", "s3://bucket/b"]')
        + """
prior = 2
restarts = 3
seed = 4
tolerance = 1e-7
max-iterations = 50
start = "network"
keep_barren = true
no-decompose = true
missing-token = ["?", ""]
weight = "n"
workers = 2
overwrite = true
json = true
"""
    )
    assert read_job(write(tmp_path, text)) == Job(
        network="alarm",
        data=(str(tmp_path / "a.parquet"), "s3://bucket/b"),
        output=str(tmp_path / "out"),
        prior=2,
        restarts=3,
        seed=4,
        tolerance=1e-7,
        max_iterations=50,
        start="network",
        keep_barren=True,
        no_decompose=True,
        missing_token=("?", ""),
        weight="n",
        workers=2,
        overwrite=True,
        json=True,
    )
    scheduler = read_job(write(tmp_path, LEAST + 'scheduler = "tcp://h:1"\nmissing_token = "?"\n'))
    assert (scheduler.scheduler, scheduler.missing_token) == ("tcp://h:1", ("?",))


def test_paths_start_from_the_file_wherever_the_process_is(tmp_path, monkeypatch):
    (tmp_path / "jobs").mkdir()
    path = write(tmp_path / "jobs", 'network = "nets/a.bif"\ndata = "../rows/*.parquet"\noutput = "/absolute/out"\n')
    monkeypatch.chdir(tmp_path)
    for spelled in (path, "jobs/job.toml"):
        job = read_job(spelled)
        assert job.network == str(tmp_path / "jobs" / "nets" / "a.bif")
        assert job.data == (str(tmp_path / "jobs" / ".." / "rows" / "*.parquet"),)
        assert job.output == "/absolute/out"


def test_a_word_is_an_example_network_unless_there_is_such_a_file(tmp_path):
    path = write(tmp_path, LEAST)
    assert read_job(path).network == "alarm"
    (tmp_path / "alarm").write_text("")
    assert read_job(path).network == str(tmp_path / "alarm")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LEAST + "restart = 3", "job .*job.toml: unknown key 'restart'; did you mean 'restarts'"),
        (LEAST + "max-iteration = 3", "unknown key 'max-iteration'; did you mean 'max_iterations'"),
        (LEAST + "zzz = 3", "unknown key 'zzz'; the keys are network, data, output"),
        (LEAST + "[simulate]\nrows = 3", "unknown key 'simulate'"),
        (
            LEAST + "max-iterations = 3\nmax_iterations = 4",
            "'max-iterations' and 'max_iterations' are the same setting",
        ),
        ('data = "d"\noutput = "o"', "'network' is missing: expected text"),
        ('network = "n"\noutput = "o"', "'data' is missing: expected text or a list of texts"),
        (LEAST + "prior = 'strong'", "'prior': expected a finite number of at least 1, found 'strong'"),
        (LEAST + "prior = true", "'prior': expected a finite number of at least 1, found True"),
        (LEAST + "prior = nan", "'prior': expected a finite number of at least 1, found nan"),
        (LEAST + "prior = inf", "'prior': expected a finite number of at least 1, found inf"),
        (LEAST + "prior = 0.5", "'prior': expected a finite number of at least 1, found 0.5"),
        (LEAST + "restarts = 1.0", "'restarts': expected a whole number of at least 1, found 1.0"),
        (LEAST + "restarts = 0", "'restarts': expected a whole number of at least 1, found 0"),
        (LEAST + "seed = -1", "'seed': expected a whole number that is not negative, found -1"),
        (LEAST + "tolerance = 0", "'tolerance': expected a finite number above 0, found 0"),
        (LEAST + "max-iterations = '9'", "'max-iterations': expected a whole number of at least 1, found '9'"),
        (LEAST + "start = 'best'", "'start': expected 'random' or 'network', found 'best'"),
        (LEAST + "keep_barren = 1", "'keep_barren': expected true or false, found 1"),
        (LEAST + "missing_token = [1]", "'missing_token': expected text or a list of texts, found"),
        (LEAST + "weight = ''", "'weight': expected text that is not empty, found ''"),
        (LEAST + "workers = 0", "'workers': expected a whole number of at least 1, found 0"),
        (LEAST + "workers = 2\nscheduler = 'tcp://h:1'", "'workers' and 'scheduler' exclude each other"),
        (LEAST.replace('"rows"', "[]"), "'data': expected text or a list of texts, found"),
        (LEAST + "\nprior = = 2", r"job .*job.toml: not TOML: .*line 5"),
    ],
)
def test_nonsense(tmp_path, text, message):
    with pytest.raises(BadInputError, match=message):
        read_job(write(tmp_path, text))


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(BadInputError, match=r"cannot read the job .*nowhere\.toml: No such file"):
        read_job(tmp_path / "nowhere.toml")
    with pytest.raises(BadInputError, match=r"cannot read the job .*: Is a directory"):
        read_job(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b'network = "a"\n# \xe9t\xe9\n')
    with pytest.raises(BadInputError, match=r"latin\.toml: not UTF-8 text \(at line 2"):
        read_job(tmp_path / "latin.toml")


def test_messages_spell_settings_as_told():
    with pytest.raises(BadInputError, match=r"^<max_iterations>: expected"):
        make_job({"network": "n", "data": ["d"], "output": "o", "max_iterations": 0}, lambda name: f"<{name}>")
