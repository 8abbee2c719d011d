"""The scripts in benchmarks/: what they print, draw and write, on the smallest of arrays."""

import runpy
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import lnfast
from lnfast import bench
from lnfast.bench import report as bench_report
from lnfast.bench.peers import PEERS

SCRIPTS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs a script in short, without PyTorch, whose threads the forks of other tests fear."""
    monkeypatch.setattr(bench, "REST_SECONDS", 0)
    monkeypatch.setattr(bench, "WARM_SECONDS", 0)
    monkeypatch.setattr(bench, "BLOCK_SECONDS", 1e-4)
    monkeypatch.setattr(type(PEERS["pytorch"]), "missing", lambda *_: "not here")

    def script(name, *arguments):
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        runpy.run_path(str(SCRIPTS / name), run_name="__main__")
        return capsys.readouterr().out.splitlines()

    return script


def test_pieces(run):
    lines = run("pieces.py", "--seconds", 0.001, "--rows", 3, "--cols", 16)
    assert lines[-10].split()[3:] == ["3×16", "float32", "float64"]
    for line, name in zip(lines[-9:], ["layer_norm", "moments", "merge_moments"], strict=False):
        assert line.split()[0] == name and float(line.split()[1].replace(",", "")) > 0


@pytest.mark.skipif(lnfast.get_num_threads() < 2, reason="one thread: nothing to compare")
def test_threads(run):
    lines = run("threads.py", "--seconds", 0.001, "--cols", 16)
    assert [line.split(",")[0] for line in lines if "rows of 16" in line] == ["forward", "backward"]
    assert sum(line.startswith("a second thread") for line in lines) == 2
    assert sum(line.split()[:2] == ["64", "1,024"] for line in lines) == 2


def test_calls(run):
    lines = run("calls.py", "--seconds", 0.01)
    start = next(i for i, line in enumerate(lines) if line.startswith("nanoseconds"))
    assert lines[start].split()[-2:] == ["1×768", "1×8"]
    times = dict(line.split("  ", 1) for line in lines[start + 1 :])
    assert {"layer_norm", "layer_norm, out=", "LayerNorm: layer(x)", "np.add(x, x)"} <= times.keys()
    assert {"rms_norm", "rms_norm_forward", "rms_norm_backward"} <= times.keys()
    assert all(int(time) > 0 for pair in times.values() for time in pair.replace(",", "").split())


def test_growth(run, tmp_path):
    file, picture = tmp_path / "growth.json", tmp_path / "growth.png"
    plot = ["--plot", picture] if find_spec("matplotlib") else []
    lines = run("growth.py", "--largest", 4e5, "--seconds", 0.01, "--json", file, *plot)
    rows = [line.split() for line in lines if line[:10].strip().replace(",", "").isdigit()]
    elements = ["100", "316", "768", "3,072", "9,984", "31,488", "99,840", "316,416"]
    assert [row[2] for row in rows] == elements * 2
    threads = bench.available_threads() > 1
    assert [row[6] != "–" for row in rows] == [threads and i % 8 > 5 for i in range(16)]
    assert sum(line.startswith("slope from 65,536 elements on, in all: ") for line in lines) == 2
    assert sum("smallest speed-up" in line for line in lines) == 2 * threads
    with file.open(encoding="utf-8") as text:
        assert len(bench_report.read(text).cells) == 16
    assert not plot or picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["avx512.json", "avx2.json", "growth.json"])
def test_results_are_read(name):
    """Those too from before a cell said which norm it measures."""
    with (SCRIPTS / "results" / name).open(encoding="utf-8") as text:
        assert bench_report.read(text).norm == "layer_norm"
