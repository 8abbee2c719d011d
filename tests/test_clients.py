"""Unmodified programs from PyPI on lnfast: the same answers, every layer norm lnfast's, and back.

The programs are those of benchmarks/programs that are installed; swaps.py tries them.
"""

import sys
from importlib import reload
from pathlib import Path

import numpy as np
import programs
import pytest
from runs import fresh_python
from swaps import FAULTS, try_program

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
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
    assert trial.before.calls == trial.after.calls == trial.after.of_lnfast.total() > 0


def test_the_program_is_as_it_was(trial):
    np.testing.assert_equal(trial.again.answers, trial.before.answers)
    assert trial.before.of_lnfast.total() == trial.again.of_lnfast.total() == 0


def test_training_goes_backward_through_lnfast(trial):
    backward = trial.after.of_lnfast["layer_norm_backward"]
    assert backward == (trial.after.calls / 2 if trial.name in TRAINING else 0)


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


@pytest.mark.skipif(
    bool(programs.missing(programs.load("keras"))), reason="Keras or jax is not installed"
)
def test_keras_with_another_backend_is_an_error():
    code = f"""
    import sys
    sys.path.append({str(BENCHMARKS)!r})
    import keras
    import programs.keras
    try:
        programs.keras.Program()
    except RuntimeError as error:
        print(error)
    """
    said = fresh_python(code, KERAS_BACKEND="jax").stdout
    assert "backend jax: the NumPy backend needs a process of its own" in said
