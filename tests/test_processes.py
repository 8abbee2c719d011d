"""Threads and processes: fork, Python threads, limits, the floating-point mode, OpenMP peers."""

import ctypes
import multiprocessing
import os
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

import lnfast

BIG = (512, 768)  # far above the size from which a second thread is woken


def draw(seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal(BIG).astype(np.float32), rng.standard_normal(BIG).astype(np.float32)


def run(x, dy, **threads):
    y, cache = lnfast.layer_norm_forward(x, BIG[1], **threads)
    return b"".join(a.tobytes() for a in (y, *lnfast.layer_norm_backward(dy, cache, **threads)))


def in_fresh_python(code, **environment):
    """What `code` prints in a new interpreter, which must end by itself and well."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", textwrap.dedent(code)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def child(connection, x, dy, n):
    connection.send(run(x, dy, num_threads=n))
    connection.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # fork beside threads is what is tested
@pytest.mark.parametrize("n", [None, 1, 4])
def test_parallel_call_in_a_forked_child(n):
    x, dy = draw()
    expected = run(x, dy, num_threads=2)  # the parent's OpenMP threads exist now
    context = multiprocessing.get_context("fork")
    for _ in range(3):
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=child, args=(sender, x, dy, n))
        process.start()
        assert receiver.poll(30), "the child hangs"
        assert receiver.recv() == expected
        process.join(30)
        assert process.exitcode == 0
    assert run(x, dy, num_threads=2) == expected


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_grandchild():
    code = """
        import os, numpy as np, lnfast
        x = np.ones((4096, 64), np.float32)
        lnfast.layer_norm(x, 64, num_threads=2)
        if os.fork() == 0:
            lnfast.layer_norm(x, 64, num_threads=2)
            if os.fork() == 0:
                lnfast.layer_norm(x, 64, num_threads=2)
                print("grandchild", lnfast.get_num_threads(), flush=True)
                os._exit(0)
            os._exit(os.wait()[1])
        print("status", os.wait()[1])
    """
    assert in_fresh_python(code).splitlines() == ["grandchild 1", "status 0"]


def test_many_python_threads_at_once():
    inputs = [draw(seed) for seed in range(8)]
    expected = [run(x, dy, num_threads=1) for x, dy in inputs]
    found = [None] * 8

    def work(i):
        for _ in range(5):
            found[i] = run(*inputs[i])

    workers = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert found == expected


def test_other_threads_run_during_a_call():
    """The interpreter is let go of: a counter in another thread moves while one call computes."""
    x = np.ones((4000, 4000), np.float32)
    counts, done = [0], threading.Event()

    def count():
        while not done.is_set():
            counts[0] += 1

    counter = threading.Thread(target=count)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(0.5)  # nobody is made to let go
    try:
        counter.start()
        before = counts[0]
        lnfast.layer_norm(x, 4000, num_threads=1)
        moved = counts[0] - before
    finally:
        done.set()
        sys.setswitchinterval(interval)
        counter.join()
    assert moved > 0


def test_limits_on_threads():
    code = "import lnfast; print(lnfast.get_num_threads(), lnfast.config()['num_threads'])"
    cpus = len(os.sched_getaffinity(0))
    assert in_fresh_python(code, OMP_NUM_THREADS="1") == "1 1"
    assert int(in_fresh_python(code, OMP_NUM_THREADS="64").split()[0]) <= cpus
    pinned = "import os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]); " + code
    assert in_fresh_python(pinned, OMP_NUM_THREADS="8") == "1 1"
    capped = "import lnfast; lnfast.set_num_threads(1); print(lnfast.get_num_threads())"
    assert in_fresh_python(capped) == "1"


def test_set_num_threads():
    before = lnfast.get_num_threads()
    try:
        lnfast.set_num_threads(1)
        assert lnfast.get_num_threads() == 1
        lnfast.set_num_threads(np.int64(10_000))
        assert lnfast.get_num_threads() == before
        for wrong, error in [
            (0, ValueError),
            (-1, ValueError),
            (1.5, TypeError),
            ("2", TypeError),
            (True, TypeError),
        ]:
            with pytest.raises(error, match="num_threads"):
                lnfast.set_num_threads(wrong)
    finally:
        lnfast.set_num_threads(None)
    assert lnfast.get_num_threads() == before


def test_threadpoolctl_is_heard():
    threadpoolctl = pytest.importorskip("threadpoolctl")
    with threadpoolctl.threadpool_limits(1):
        inside = lnfast.get_num_threads()
    assert inside == 1


@pytest.mark.parametrize("n", [3, 100, 10_000])
def test_more_threads_than_rows(n):
    x = np.random.default_rng(0).standard_normal((2, 50_000))
    assert np.array_equal(
        lnfast.layer_norm(x, 50_000, num_threads=n), lnfast.layer_norm(x, 50_000, num_threads=1)
    )


@pytest.mark.skipif(
    sys.platform != "linux" or os.uname().machine != "x86_64", reason="sets MXCSR through glibc"
)
def test_floating_point_mode_is_kept_and_does_not_show():
    """A caller who rounds upwards gets the same bits, from every thread, and keeps the mode."""
    libm = ctypes.CDLL("libm.so.6")
    fe_upward = 0x800
    x, dy = draw()
    x[:5] *= np.float32(1e-38)
    expected = run(x, dy, num_threads=1)
    assert libm.fesetround(fe_upward) == 0
    try:
        upward = run(x, dy, num_threads=1), run(x, dy, num_threads=2)
        kept = libm.fegetround()
    finally:
        libm.fesetround(0)
    assert kept == fe_upward
    assert upward == (expected, expected)


def test_import_and_calls_leave_no_footprint():
    code = """
        import os, signal, warnings, numpy as np
        def state():
            handlers = [signal.getsignal(s) for s in signal.valid_signals()]
            return dict(os.environ), handlers, list(warnings.filters), np.geterr()
        before = state()
        import lnfast
        x = np.array([[1e38, -1e38, 0], [np.nan, 1, 2], [np.inf, 0, 1]], np.float32)
        with np.errstate(all="raise"):
            y, cache = lnfast.layer_norm_forward(x, 3, eps=0)
            lnfast.layer_norm_backward(x, cache)
        assert state() == before
        print("same")
    """
    assert in_fresh_python(code) == "same"


def test_unknown_instruction_set():
    done = subprocess.run(
        [sys.executable, "-P", "-c", "import lnfast"],
        env={**os.environ, "LNFAST_ISA": "mmx"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert (
        "ImportError: LNFAST_ISA='mmx' is not one of" in done.stderr and "baseline" in done.stderr
    )


def test_chosen_instruction_set():
    for isa in lnfast.config()["isa_available"]:
        code = "import lnfast; print(lnfast.config()['isa'])"
        assert in_fresh_python(code, LNFAST_ISA=isa) == isa


@pytest.mark.parametrize(
    "order",
    ["torch, lnfast", "lnfast, torch", "sklearn.cluster, lnfast", "lnfast, sklearn.cluster"],
)
def test_beside_other_openmp_users(order):
    """One process, both import orders, a parallel call in each."""
    other = order.replace("lnfast", "").strip(", ").split(".")[0]
    pytest.importorskip(other)
    code = f"""
        import {order}
        import numpy as np
        x = np.random.default_rng(0).standard_normal((2000, 64)).astype(np.float32)
        def others():
            if {other!r} == "torch":
                return torch.nn.functional.layer_norm(torch.from_numpy(x), (64,)).numpy()
            sklearn.cluster.KMeans(3, n_init=1).fit(x)
        for _ in range(2):
            y = lnfast.layer_norm(x, 64, num_threads=2)
            others()
        assert abs(y.mean(axis=1)).max() < 1e-6
        print("both")
    """
    assert in_fresh_python(code) == "both"
