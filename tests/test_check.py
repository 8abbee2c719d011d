"""`lnfast check`: it finds nothing here, and each kind of fault where there is one."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest

import lnfast
from lnfast import cli
from lnfast.check import bits, bounds, command, examples, oracle

COMMAND = "import sys; from lnfast.cli import main; sys.exit(main())"


@pytest.fixture
def short(monkeypatch):
    """One length of rows, one instruction set."""
    monkeypatch.setattr(bounds, "SHORT_LENGTHS", (33,))
    isa = lnfast.config()["isa"]
    config = {**lnfast.config(), "isa_available": [isa]}
    monkeypatch.setattr(lnfast, "config", lambda: config)


def check(capsys, *arguments):
    """The exit code, what was printed, and the verdict on each promise."""
    code = cli.main(["check", *arguments])
    text = capsys.readouterr().out
    verdicts = re.findall(r"^(\w[\w ,]+?)  +(kept|BROKEN|not judged)  (?:.*?)$", text, re.MULTILINE)
    return code, text, dict(verdicts)


def test_all_is_kept():
    done = subprocess.run(
        [sys.executable, "-P", "-c", COMMAND, "check"],
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        env=os.environ,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count(" kept ") == 6 and "no promise broken" in done.stdout
    assert all(isa in done.stdout for isa in lnfast.config()["isa_available"])
    assert str(len(examples.EXAMPLES)) in done.stdout


def test_bits_prints_the_golden_lines(capsys):
    assert cli.main(["check", "--bits"]) == 0
    assert capsys.readouterr().out.splitlines() == bits.golden()


def test_golden_lines_are_told_apart():
    """No digest stands there twice, but for rows of one element, which are all the same."""
    lines = bits.golden()
    assert len(lines) == len(bits.NORMS) * len(bits.DTYPES) * len(bits.COLUMNS)
    long = [line for line in lines if "x1 " not in line]
    for name in ("y", "mean", "rstd", "dx", "dweight", "dbias"):
        digests = [found[1] for line in long if (found := re.search(rf" {name}=(\w+)", line))]
        assert len(set(digests)) == len(digests) >= len(long) // len(bits.NORMS)


def broken_forward(monkeypatch, change):
    plain = lnfast.layer_norm_forward

    def forward(*args, **kwargs):
        y, cache = plain(*args, **kwargs)
        return change(y, cache)

    monkeypatch.setattr(lnfast, "layer_norm_forward", forward)


def test_a_result_beyond_its_bound(short, monkeypatch, capsys):
    broken_forward(
        monkeypatch, lambda y, cache: (y * (1 + 8 * np.finfo(y.dtype).eps).astype(y.dtype), cache)
    )
    code, text, verdicts = check(capsys)
    assert code == 1
    assert verdicts["layer_norm, float32"] == verdicts["layer_norm, float64"] == "BROKEN"
    evidence = r"y is off by [4-9]\.\d+ machine epsilons of the 3 allowed: normal, float32, 37×33"
    assert re.search(evidence, text)
    assert re.search(r"^    and \d+ more$", text, re.MULTILINE)


def test_a_gradient_beyond_its_bound(short, monkeypatch, capsys):
    broken_forward(monkeypatch, lambda y, cache: (y, cache._replace(rstd=cache.rstd * (1 + 1e-5))))
    code, text, verdicts = check(capsys)
    assert (code, verdicts["layer_norm, float32"]) == (1, "BROKEN")
    assert "dx is off by" in text and "dweight is off by" in text and "y is off by" not in text


def test_a_wrong_example(short, monkeypatch, capsys):
    wrong = examples.EXAMPLES[0]._replace(stated={"dbias": [1, -1, 2.0001]})
    monkeypatch.setattr(examples, "EXAMPLES", (wrong,))
    code, text, verdicts = check(capsys)
    assert (code, verdicts["worked examples"], verdicts["bits"]) == (1, "BROKEN", "kept")
    assert "one row by hand, float32: dbias is [1.0, -1.0, 2.0], not [1.0, -1.0, 2.0001]" in text


def test_other_bits(short, monkeypatch, capsys):
    lines = bits.golden()
    lines[40] = re.sub(r"dx=\w+", "dx=000000000000", lines[40])
    monkeypatch.setattr(bits, "golden", lambda: lines)
    code, text, verdicts = check(capsys)
    assert (code, verdicts["bits"]) == (1, "BROKEN")
    shape = lines[40].split()[1]
    for threads in ("1 thread", "2 threads", "3 threads", "16 threads"):
        assert f"{lnfast.config()['isa']}, {threads}: float32 {shape}: dx" in text


def test_an_instruction_set_that_does_not_run(short, monkeypatch, capsys):
    monkeypatch.setitem(lnfast.config(), "isa_available", ["none such"])
    code, text, verdicts = check(capsys)
    assert (code, verdicts["bits"]) == (1, "BROKEN")
    assert "none such" in text and "is not one of" in text


def test_no_oracle(short, monkeypatch, capsys):
    """What cannot be judged is neither kept nor broken."""
    monkeypatch.setattr(oracle, "_WIDE", np.finfo(np.float64))
    code, text, verdicts = check(capsys)
    assert code == 0
    assert verdicts["layer_norm, float32"] == verdicts["layer_norm, float64"] == "not judged"
    assert "longdouble" in text


def test_full(short, monkeypatch, capsys):
    monkeypatch.setattr(bounds, "LENGTHS", (2, 3))
    code, text, verdicts = check(capsys, "--full")
    assert code == 0 and set(verdicts.values()) == {"kept"}
    assert "150 cases" in text


def test_worst_counts_nan():
    worst = bounds.Worst()
    case = bounds.Case("normal", "float32", 1, 2, 0.0)
    worst.add(case, {"y": 0.5})
    worst.add(case._replace(rows=2), {"y": float("nan")})
    assert worst.found["y"][1].rows == 2


def test_command_is_the_one_of_the_table():
    parser = cli.make_parser()
    assert parser.parse_args(["check"]).run is command.run
