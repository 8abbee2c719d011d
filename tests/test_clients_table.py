"""benchmarks/clients.py: what it prints and keeps, of a program that the test brings along."""

import json
import sys
from contextlib import nullcontext
from types import SimpleNamespace
from unittest.mock import patch

import clients
import numpy as np
import programs
import pytest

import lnfast


class Layer:
    def norm(self, x):
        return (x - x.mean()) / np.sqrt(x.var() + 1e-5)


OWN = Layer.norm


def on_lnfast(layer, x):
    return lnfast.layer_norm(x, x.shape)


class Program:
    """Layer norm twice."""

    def swap(self):
        return patch.object(Layer, "norm", on_lnfast)

    def run(self):
        x = np.arange(12.0)
        return [Layer().norm(x + Layer().norm(x))]

    def timed_layer_norm(self):
        return programs.timed((Layer, "norm"))

    def compare(self, before, after):
        np.testing.assert_allclose(*before, *after, rtol=1e-14)


def described(program=Program, packages=("numpy",)):
    return SimpleNamespace(NAME="a stub", WHAT="normalises 12", PACKAGES=packages, Program=program)


@pytest.fixture
def run(monkeypatch, capsys):
    """The command, of programs by their names: what it prints."""

    def command(modules, *arguments):
        monkeypatch.setattr(programs, "NAMES", list(modules))
        monkeypatch.setattr(programs, "load", modules.__getitem__)
        monkeypatch.setattr(sys, "argv", ["clients.py", *map(str, arguments)])
        clients.main()
        return capsys.readouterr().out.splitlines()

    return command


def test_a_row(run, tmp_path):
    file = tmp_path / "clients.json"
    lines = run({"stub": described()}, "--repeat", 3, "--json", file)
    assert f"NumPy {np.__version__}, numpy {np.__version__}" in lines[1]
    *words, calls, before, after, ms_before, ms_after, ratio = lines[-1].split()
    assert (words, calls) == (["a", "stub", "normalises", "12"], "2")
    assert 0 < float(before.rstrip("%")) < 100 and 0 < float(after.rstrip("%")) < 100
    kept = json.loads(file.read_text(encoding="utf-8"))
    assert kept["machine"]["versions"]["numpy"] == np.__version__
    (row,) = kept["programs"]
    assert (row["name"], row["what"], row["calls"]) == ("a stub", "normalises 12", 2)
    for shown, number in ((ms_before, "before"), (ms_after, "after")):
        assert shown == f"{row['seconds'][number] * 1e3:.1f}"
    assert ratio == f"{row['ratio']:.2f}"


def clock(calls):
    """A stopwatch that shows half a second."""
    return nullcontext(SimpleNamespace(seconds=0.5, calls=calls))


def test_sides_take_turns():
    class Watched(Program):
        def run(self):
            sides.append("before" if Layer.norm is OWN else "after")
            return super().run()

        def timed_layer_norm(self):
            return clock(2)

    sides = []
    clients.measure(described(Watched), 2)
    assert sides == ["before", "after"] + 2 * ["before"] + 4 * ["after"] + 2 * ["before"]
    assert Layer.norm is OWN


def test_medians_and_the_ratio_of_turns(monkeypatch):
    # Each second run is one whose layer norm is timed. Turns: 6 / 3, 2 / 8 and 8 / 2
    times = {"before": iter([6, 2, 2, 1, 8, 5]), "after": iter([3, 1, 8, 1, 2, 5])}
    monkeypatch.setattr(Program, "timed_layer_norm", lambda _: clock(2))
    monkeypatch.setattr(
        clients, "seconds_of", lambda _: next(times["before" if Layer.norm is OWN else "after"])
    )
    row = clients.measure(described(), 3)
    assert row.seconds == {"before": 6, "after": 3}
    assert row.shares == {"before": 0.25, "after": 0.5}
    assert row.ratio == 2


def test_what_is_missing_is_named(run):
    modules = {"one": described(packages=("numpy", "no_such_package")), "two": described()}
    lines = run(modules, "--repeat", 1)
    assert lines[-2] == "a stub: not installed (no_such_package)"
    assert lines[-1].startswith("a stub  normalises 12")


def test_only_the_programs_that_are_named(run):
    modules = {"one": described(), "two": described(packages=("no_such_package",))}
    assert "not installed" in run(modules, "two")[-1]
    assert "not installed" not in "".join(run(modules, "one", "--repeat", 1))


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["three"], "no program: three"),
        (["--repeat", "0"], "argument --repeat: must be at least 1, got 0"),
    ],
)
def test_arguments(run, capsys, arguments, message):
    with pytest.raises(SystemExit, match="2"):
        run({"one": described()}, *arguments)
    assert message in capsys.readouterr().err


def test_other_answers_are_an_error():
    class Wrong(Program):
        def swap(self):
            return patch.object(Layer, "norm", lambda layer, x: x)

    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        clients.measure(described(Wrong), 1)


def test_another_number_of_calls_is_an_error(monkeypatch):
    counts = iter([2, 3])
    monkeypatch.setattr(Program, "timed_layer_norm", lambda _: clock(next(counts)))
    with pytest.raises(AssertionError, match="a stub: layer norm is called .*2.*3"):
        clients.measure(described(), 1)


def test_stopwatch():
    with programs.timed((Layer, "norm")) as stopwatch:
        with pytest.raises(AttributeError):
            Layer().norm(None)
        assert Layer.norm.__name__ == "norm"
        Layer().norm(np.arange(3.0))
    assert stopwatch.calls == 2 and stopwatch.seconds > 0
    assert Layer.norm is OWN
