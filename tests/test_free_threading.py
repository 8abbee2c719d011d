"""The free-threaded interpreter: the import leaves the lock off, and calls run side by side."""

import sys
import sysconfig
import threading

import pytest
from runs import SHAPES, draw, in_fresh_python, run

import lnfast

free_threaded = pytest.mark.skipif(
    not sysconfig.get_config_var("Py_GIL_DISABLED"),
    reason="this interpreter always has its lock: shown on a free-threaded one alone",
)


@free_threaded
def test_the_lock_stays_off():
    """Python turns it on, with a warning, for an extension that does not declare itself safe."""
    code = """
        import sys, numpy
        assert not sys._is_gil_enabled(), "NumPy"
        import lnfast
        print(sys._is_gil_enabled())
    """
    assert in_fresh_python(code, "-W", "error", PYTHON_GIL=None) == "False"


@free_threaded
def test_calls_side_by_side():
    """Small and large calls, the cap, config(), shared layers: from threads that nothing orders."""
    inputs = [draw(seed, shape) for seed, shape in enumerate(SHAPES)]
    expected = [run(x, dy, num_threads=1) for x, dy in inputs]
    layers = [lnfast.LayerNorm(x.shape[1]) for x, _ in inputs]
    inferred = [layer(x).tobytes() for layer, (x, _) in zip(layers, inputs, strict=True)]
    wrong = []
    start = threading.Barrier(4 * len(inputs))

    def hammer(i, number):
        start.wait(30)
        for turn in range(50):
            lnfast.set_num_threads(1 + (number + turn) % 3)
            if run(*inputs[i]) != expected[i] or layers[i](inputs[i][0]).tobytes() != inferred[i]:
                wrong.append((i, number, turn))
            lnfast.config()

    workers = [
        threading.Thread(target=hammer, args=(i, number))
        for number in range(4)
        for i in range(len(inputs))
    ]
    try:
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    finally:
        lnfast.set_num_threads(None)
    assert not wrong
    assert not sys._is_gil_enabled()
