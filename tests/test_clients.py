"""Unmodified programs from PyPI on lnfast: the same answers, every layer norm lnfast's, and back.

The programs are those of benchmarks/programs that are installed; swaps.py tries them.
"""

import sys
from importlib import reload

import programs
import pytest
from swaps import FAULTS, try_program

TRAINING = "neuralnetlib", "neuralnetlib_transformer"


@pytest.fixture(scope="module", params=programs.NAMES)
def trial(request):
    module = programs.load(request.param)
    if packages := programs.missing(module):
        pytest.skip(f"{', '.join(packages)} not installed: pip install 'lnfast[clients]'")
    return try_program(request.param)


def test_the_same_answers(trial):
    assert trial.difference is None


def test_every_layer_norm_is_lnfasts(trial):
    assert trial.calls["before"] == trial.calls["after"] > 0
    assert trial.of_lnfast["after"].total() == trial.calls["after"]


def test_the_program_is_as_it_was(trial):
    assert trial.restored
    assert trial.of_lnfast["before"].total() == trial.of_lnfast["again"].total() == 0


def test_training_goes_backward_through_lnfast(trial):
    backward = trial.of_lnfast["after"]["layer_norm_backward"]
    assert backward == (trial.calls["after"] / 2 if trial.name in TRAINING else 0)


def test_faults_are_noticed(trial):
    faults = FAULTS if trial.name in TRAINING else ("wrong_eps", "not_normalized")
    assert trial.noticed == dict.fromkeys(faults, True)


@pytest.mark.parametrize("name", programs.NAMES)
def test_listed_without_its_packages(name, monkeypatch):
    module = programs.load(name)
    for package in module.PACKAGES:
        monkeypatch.setitem(sys.modules, package, None)
    module = reload(module)
    assert module.NAME and module.WHAT and "\n" not in module.WHAT
    assert isinstance(module.PACKAGES, tuple)
    assert programs.missing(module) == list(module.PACKAGES)
    with pytest.raises(ImportError):
        module.Program()
