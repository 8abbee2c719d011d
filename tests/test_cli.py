"""The command: what demo, info and bench print, their exit codes, and how errors look."""

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter

import numpy as np
import pytest

import lnfast
from lnfast import bench, cli, progress
from lnfast.bench import command as bench_command
from lnfast.bench.cells import NORMS
from lnfast.bench.peers import COPIES, PEERS, REFILLING, c_loops, peer

COMMAND = str(Path(sys.executable).with_name("lnfast"))
TINY = ["bench", "--shape", "3x8", "--seconds", "0.05"]
TORCH = find_spec("torch") is not None


def run(*arguments, **environment):
    return subprocess.run(
        [COMMAND, *arguments],
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        env={**os.environ, "PYTHONIOENCODING": "utf-8", **environment},
    )


def names_of(peers):
    return {peer.name for peer in bench.present(peers, lnfast.get_num_threads())}


def done(*arguments, **environment):
    result = run(*arguments, **environment)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def test_demo():
    start = perf_counter()
    text = done("demo")
    assert perf_counter() - start < 10
    lines = {line.split()[0]: line.split()[1:4] for line in reversed(text.splitlines()) if line}
    assert lines["eps"] == ["1/3"]
    assert lines["rstd"][0] == "1"
    assert lines["xhat"] == ["-1", "0", "1"]
    assert lines["y"] == ["-1", "1", "2"]
    assert lines["h"] == ["1", "-2", "6"]
    assert lines["mean(h)"] == lines["mean(h·xhat)"] == ["5/3"]
    assert lines["dx"] == ["1", "-11/3", "8/3"]
    assert lines["dweight"] == ["-1", "0", "2"]
    assert lines["dbias"] == ["1", "-1", "2"]
    assert "(2, 3, 1)" in text and "(2, 1, 1)" in text
    assert max(map(len, text.splitlines())) <= 100
    assert ("torch is not installed" in text) == (not TORCH)


def test_demo_errors_are_within_the_promise():
    """The errors that it shows are measured: lnfast's keep the bounds, with and without offset."""
    rows = [line.split() for line in done("demo").splitlines() if line.startswith("   lnfast  ")]
    assert len(rows) == 2
    for numbers in rows:
        y, dx, dweight, dbias = map(float, numbers[-4:])
        assert 0 < y <= 3 and 0 < dx <= 4 and 0 < dweight <= 4 and 0 < dbias <= 2


def test_info():
    text = done("info")
    for name, value in lnfast.config().items():
        value = ", ".join(value) if isinstance(value, list) else str(value)
        assert re.search(rf"^{name} +{re.escape(value)}$", text, re.MULTILINE)
    assert re.search(rf"^numpy +{re.escape(np.__version__)}$", text, re.MULTILINE)
    assert json.loads(done("info", "--json")) == lnfast.config()


def test_version():
    assert done("--version") == f"lnfast {lnfast.__version__}\n"


@pytest.mark.parametrize(
    "options, norm", [([], "layer_norm"), (["--norm", "rms_norm"], "rms_norm")]
)
def test_bench(options, norm, tmp_path):
    text = done(*TINY, *options, "--json", str(tmp_path / "bench.json"))
    config = lnfast.config()
    top, versions = text.splitlines()[:2]
    assert config["isa"] in top and config["compiler"] in top
    assert f"NumPy {np.__version__}" in versions and ("PyTorch" in versions) == TORCH
    assert re.search(rf"^{norm} +lnfast\b", text, re.MULTILINE)
    for direction in ("forward", "backward"):
        assert re.search(rf"^3×8 +float32 {direction} +[0-9]", text, re.MULTILINE)
        assert f"{direction}: geometric mean" in text and f"{direction}: smallest" in text
        assert (f"{direction}: smallest ratio to the best library: " in text) == TORCH

    report = json.loads((tmp_path / "bench.json").read_text())
    assert report["machine"]["isa"] == config["isa"]
    assert report["machine"]["num_threads"] == config["num_threads"]
    for measured, direction in zip(report["cells"], ("forward", "backward"), strict=True):
        cell = bench.Cell(3, 8, "float32", direction, norm)
        assert bench.Cell(**measured["cell"]) == cell and measured["cell"]["norm"] == norm
        assert measured["turns"] >= bench.MIN_TURNS
        timings = measured["timings"]
        expected = names_of([peer for peer in PEERS.values() if peer.by_default])
        if direction == "backward":
            expected -= {"ONNX Runtime", "OpenVINO"}
        assert set(timings) - {REFILLING.name} == expected | names_of(COPIES)
        assert timings["lnfast"]["ratio"] == 1
        refilling = direction == "forward" and any(
            peer.refills and peer.missing() is None for peer in PEERS.values()
        )
        assert (REFILLING.name in timings) == refilling
        assert not refilling or timings[REFILLING.name]["ratio"] == 1
        copies = names_of(COPIES)
        assert measured["copy"] == min(copies, key=lambda name: timings[name]["seconds"])
        for timing in timings.values():
            assert 1e-8 < timing["seconds"] < 1 and timing["ratio"] > 0
            assert timing["problem"] is None


def test_bench_limits():
    options = ["--backward", "--shape", "2x4", "--dtype", "float64", "float32", "--peers", "numpy"]
    text = done(*TINY, *options, "--threads", "1")
    rows = re.findall(r"^(\S+) +(float\S+) +(\S+)", text, re.MULTILINE)
    assert rows == [
        (shape, dtype, "backward") for dtype in ("float64", "float32") for shape in ("3×8", "2×4")
    ]
    assert ", 1 thread, " in text and "PyTorch" not in text


@pytest.mark.parametrize("norm", NORMS)
def test_bench_calls_of_one_row_are_named(norm):
    options = ["--shape", "1x768", "--forward", "--seconds", "0.05", "--peers", "numpy"]
    text = done("bench", "--norm", norm, *options)
    assert re.search(r"^one whole call at 1×768.*: lnfast [0-9.]+ µs, NumPy", text, re.MULTILINE)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "COMMAND"),
        (["train"], "'train'"),
        (["demo", "--fast"], "--fast"),
        (["bench", "--shape", "3x"], "'3x' is no shape"),
        (["bench", "--shape", "0x5"], "'0x5' is no shape"),
        (["bench", "--shape", "2x3x4"], "'2x3x4' is no shape"),
        (["bench", "--shape", "-1x4"], "--shape"),
        (["bench", "--dtype", "float16"], "'float16'"),
        (["bench", "--norm", "batch_norm"], "'batch_norm'"),
        (["bench", "--peers", "numpy,matlab"], "'matlab' is none of lnfast, copy, pytorch"),
        (["bench", "--peers", ""], "'' is none of"),
        (["bench", "--threads", "0"], "'0' is no number of threads"),
        (["bench", "--threads", "two"], "'two' is no number of threads"),
        (["bench", "--seconds", "nan"], "'nan' is no time"),
        (["bench", "--seconds", "0"], "'0' is no time"),
        (["bench", "--forward", "--backward"], "not allowed with"),
        (["bench", "--json", "no/such/folder/file"], "no/such/folder/file"),
        (["bench", "--plot", "no/such/folder/file"], "argument --plot"),
        (["bench", "--from", "no/such/file"], "argument --from"),
        (["bench", "--from", __file__], "argument --from: no report"),
        (["bench", "--from", __file__, "--quick"], "--from measures nothing"),
        (["bench", "--from", __file__, "--norm", "rms_norm"], "--from measures nothing"),
    ],
)
def test_wrong_arguments(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert result.returncode == 2
    assert message in result.stderr and "Traceback" not in result.stderr
    assert result.stdout == ""


def test_too_large_for_the_memory():
    result = run("bench", "--shape", "1000000000x1000000000", "--seconds", "0.01")
    assert result.returncode == 1
    assert result.stderr.startswith("lnfast: not enough memory")


@pytest.mark.skipif(os.name != "posix", reason="pipes of POSIX")
@pytest.mark.parametrize("lines", [0, 1])
def test_reader_leaves(lines):
    with subprocess.Popen([COMMAND, "demo"], stdout=-1, stderr=-1) as process:
        for _ in range(lines):
            process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=60) == 141


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_disk_full():
    with open("/dev/full", "w") as full:
        result = subprocess.run([COMMAND, "info"], stdout=full, stderr=-1, encoding="utf-8")
    assert result.returncode == 1
    assert result.stderr.startswith("lnfast: ") and "Traceback" not in result.stderr


def test_terminal_without_our_signs():
    assert "dx" in done("demo", PYTHONIOENCODING="ascii")


def test_missing_peer_is_named_and_left_out(monkeypatch, capsys):
    monkeypatch.setattr(PEERS["pytorch"], "module", "not_there")
    assert cli.main([*TINY, "--peers", "numpy,pytorch"]) == 0
    text = capsys.readouterr().out
    assert "without PyTorch: torch is not installed\n" in text
    assert re.search(r"^3×8 +float32 forward", text, re.MULTILINE)


def break_numpy(monkeypatch, change, method="forward"):
    """Let the results of one of the NumPy peer's methods pass through change."""
    whole = getattr(PEERS["numpy"], method)

    def broken(*operands):
        call = whole(*operands)
        return lambda: change(call())

    monkeypatch.setattr(PEERS["numpy"], method, broken)


def fail(y):
    raise RuntimeError("no such kernel")


@pytest.mark.parametrize(
    "change, problem",
    [
        (lambda y: y + 1, "y is off by"),
        (lambda y: y * np.nan, "y is off by nan"),
        (lambda y: y[:1], "y has shape (1, 8)"),
        (lambda y: y.astype(np.float64), "y is float64"),
        (fail, "RuntimeError: no such kernel"),
    ],
)
def test_wrong_result_is_reported(change, problem, monkeypatch, capsys):
    break_numpy(monkeypatch, change)
    assert cli.main([*TINY, "--peers", "numpy"]) == 1
    text = capsys.readouterr().out
    assert f"WRONG: NumPy, 3×8 float32 layer_norm forward: {problem}" in text
    assert "NumPy, 3×8 float32 layer_norm backward" not in text


@pytest.mark.parametrize(
    "method, change, problem",
    [
        ("rms_forward", lambda y: y + 1, "forward: y is off by"),
        ("rms_backward", lambda results: (results[0] + 1, results[1]), "backward: dx is off by"),
        ("rms_backward", lambda results: (results[0], -results[1]), "backward: dweight is off by"),
    ],
)
def test_wrong_result_of_rms_norm_is_reported(method, change, problem, monkeypatch, capsys):
    break_numpy(monkeypatch, change, method)
    assert cli.main([*TINY, "--norm", "rms_norm", "--peers", "numpy"]) == 1
    assert f"WRONG: NumPy, 3×8 float32 rms_norm {problem}" in capsys.readouterr().out


def test_peer_without_rms_norm_has_no_time(monkeypatch, capsys):
    """Neither layer norm's in its place."""
    for method in ("rms_forward", "rms_backward"):
        monkeypatch.setattr(PEERS["numpy"], method, getattr(peer.Peer(), method))
    assert cli.main([*TINY, "--norm", "rms_norm", "--peers", "numpy"]) == 0
    rows = re.findall(r"^3×8 +float32 +(\w+) .* (\S+)$", capsys.readouterr().out, re.MULTILINE)
    assert rows == [("forward", "–"), ("backward", "–")]


def test_measuring_puts_the_thread_cap_back():
    cell = bench.Cell(2, 8, "float64", "backward")
    threads = lnfast.get_num_threads()
    lnfast.set_num_threads(1)
    try:
        bench.measure(cell, [PEERS["numpy"]], seconds=0.01)
        assert lnfast.get_num_threads() == 1
    finally:
        lnfast.set_num_threads(None)
    bench.measure(cell, [PEERS["numpy"]], num_threads=1, seconds=0.01)
    assert lnfast.get_num_threads() == threads


def test_with_numpy_alone(monkeypatch, capsys):
    """Whatever else is installed here: what is missing is named, and NumPy's copy is the floor."""
    monkeypatch.setattr(
        peer, "find_spec", lambda name: name if name in ("lnfast", "numpy") else None
    )
    monkeypatch.setattr(c_loops.shutil, "which", lambda name: None)
    monkeypatch.delenv("CC", raising=False)
    assert cli.main(TINY) == 0
    text = capsys.readouterr().out
    for name in ("PyTorch", "ONNX Runtime", "OpenVINO", "JAX", "Numba"):
        assert f"without {name}: " in text
    assert "without C: the compiler cc is not installed\n" in text
    assert re.search(r"^3×8 +float32 forward +([0-9.]+ +){3}[0-9.]+$", text, re.MULTILINE)
    assert "best library" not in text


def test_a_copy_that_copies_wrongly_is_reported(monkeypatch, capsys):
    monkeypatch.setattr(COPIES[0], "forward", lambda x, *others: lambda: x + 1)
    assert cli.main([*TINY, "--peers", "lnfast", "--forward"]) == 1
    text = capsys.readouterr().out
    assert "WRONG: copy (NumPy), 3×8 float32 layer_norm forward: y is off by" in text


@pytest.mark.parametrize("norm", NORMS)
def test_table_and_plot_from_a_report(norm, tmp_path):
    pytest.importorskip("matplotlib")
    report, first, again = (str(tmp_path / name) for name in ("r.json", "1.png", "2.png"))
    options = ["--norm", norm, "--peers", "numpy", "--json", report, "--plot", first]
    table = done(*TINY, *options)
    assert done("bench", "--from", report, "--plot", again) == table
    for file in (first, again):
        assert Path(file).read_bytes().startswith(b"\x89PNG")


def test_plot_without_matplotlib(monkeypatch, capsys):
    """An error before anything is measured."""
    monkeypatch.setattr(bench_command, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="2"):
        cli.main([*TINY, "--plot", "picture.png"])
    outputs = capsys.readouterr()
    assert "argument --plot: matplotlib is not installed" in outputs.err and not outputs.out


@pytest.mark.parametrize("tqdm", [True, False])
def test_progress(tqdm, monkeypatch, capsys):
    """A bar or a counter, and only where stderr is a terminal."""
    if tqdm:
        pytest.importorskip("tqdm")
    else:
        monkeypatch.setattr(progress, "find_spec", lambda name: None)
    assert cli.main([*TINY, "--peers", "lnfast"]) == 0
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert cli.main([*TINY, "--peers", "lnfast"]) == 0
    shown = capsys.readouterr().err
    assert "3×8 float32 layer_norm backward" in shown and ("1/2  " in shown) == (not tqdm)


def test_peers_by_name():
    parse = bench_command.parse_peers
    assert parse("all") == list(PEERS.values())
    assert [peer.name for peer in parse("C, ONNXRuntime")] == ["lnfast", "ONNX Runtime", "C"]
    assert parse("copy") == [PEERS["lnfast"]]
