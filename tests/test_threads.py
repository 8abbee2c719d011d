"""Many Python threads at once: the same bits from each, and none waits for another's call.

Also a number of threads that is given, and OpenMP's other users in the same process.
"""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from norms import FUNCTIONS, norm_of
from runs import SHAPES, draw, in_fresh_python, run

import lnfast

# Arrays of several calls at once differ in shape and dtype; every one of SHAPES has two owners.
INPUTS = [
    draw(seed, shape, dtype)
    for seed, (shape, dtype) in enumerate((s, d) for d in (np.float32, np.float64) for s in SHAPES)
]


def train(x, dy):
    """The bits of two steps of a layer that is this thread's own."""
    layer = lnfast.LayerNorm(x.shape[1], dtype=x.dtype)
    for _ in range(2):
        y, cache = layer.forward(x)
        dx = layer.backward(dy, cache)
        layer.weight -= layer.grad_weight
    return b"".join(a.tobytes() for a in (y, dx, layer.grad_weight, layer.grad_bias))


def read(x, dy):
    """The bits of a layer that all threads share and none changes."""
    return SHARED[x.shape[1], x.dtype](x).tobytes()


SHARED = {(x.shape[1], x.dtype): lnfast.LayerNorm(x.shape[1], dtype=x.dtype) for x, _ in INPUTS}


@pytest.mark.parametrize("work", [run, train, read])
def test_many_at_once(work):
    """More Python threads than processors, each of whose calls has several threads of its own."""
    expected = [work(*inputs) for inputs in INPUTS]
    start = threading.Barrier(len(INPUTS))

    def repeat(i):
        start.wait(30)
        return [work(*INPUTS[i]) for _ in range(4)]

    with ThreadPoolExecutor(len(INPUTS)) as pool:
        for found, wanted in zip(pool.map(repeat, range(len(INPUTS))), expected, strict=True):
            assert found == [wanted] * 4


def test_the_cap_changed_meanwhile():
    """`set_num_threads` from one thread while others compute: threads differ, bits do not."""
    x, dy = INPUTS[0]
    expected = run(x, dy, num_threads=1)
    before = lnfast.get_num_threads()
    done = threading.Event()

    def change():
        for i in range(10**9):
            lnfast.set_num_threads((1, 2, 3, None)[i % 4])
            if done.is_set():
                return i

    def compute():
        return [run(x, dy) for _ in range(40)]

    try:
        with ThreadPoolExecutor(4) as pool:
            changes = pool.submit(change)
            runs = [pool.submit(compute) for _ in range(3)]
            try:
                found = [bits for each in runs for bits in each.result()]
            finally:
                done.set()
            assert changes.result() > 4
    finally:
        lnfast.set_num_threads(None)
    assert found == [expected] * 120
    assert lnfast.get_num_threads() == before


def lets_others_run(call):
    """Whether a thread that waits for the interpreter has it before the call returns."""
    ran = False

    def wait_and_run(gate):
        nonlocal ran
        with gate:
            ran = True

    interval = sys.getswitchinterval()
    sys.setswitchinterval(60)  # nobody is made to let go
    try:
        for _ in range(100):  # the system may leave the other without a processor for some calls
            gate = threading.Lock()
            with gate:
                other = threading.Thread(target=wait_and_run, args=(gate,))
                other.start()
            call()
            in_time = ran
            other.join()
            if in_time:
                break
            ran = False
    finally:
        sys.setswitchinterval(interval)
    return in_time


@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_other_threads_run_during_a_call(function, num_threads):
    """The interpreter is let go of: a thread that waits for it has it before the call returns.

    Where a call has several threads of its own, Cython's prange lets go of it too.
    """
    x = np.random.default_rng(0).standard_normal((2048, 1000)) * 1e300  # slow: worked out exactly
    arguments = (x, 1000)
    if function.endswith("backward"):
        arguments = x, norm_of(function).forward(x, 1000)[1]
    assert lets_others_run(lambda: getattr(lnfast, function)(*arguments, num_threads=num_threads))


@pytest.mark.parametrize("num_threads", [1, 2])
def test_other_threads_run_while_rows_are_gathered(num_threads):
    x = np.random.default_rng(0).standard_normal((2048, 1000)) * 1e300
    live = x > -1e300
    _, cache = lnfast.layer_norm_forward(x, 1000, mask=live)
    for name, call in {
        "axis": lambda n: lnfast.layer_norm(x, axis=0, num_threads=n),
        "mask": lambda n: lnfast.layer_norm(x, 1000, mask=live, num_threads=n),
        "residual": lambda n: lnfast.add_layer_norm(x, x, 1000, num_threads=n),
        "backward": lambda n: lnfast.layer_norm_backward(x, cache, num_threads=n),
    }.items():
        assert lets_others_run(lambda call=call: call(num_threads)), name


@pytest.mark.parametrize("n", [2, 3, 16, 100, 10_000])
@pytest.mark.parametrize("shape", [*SHAPES, (2, 50_000), (1, 8)])
def test_a_given_number_is_taken_and_does_not_show(n, shape):
    """More threads than rows or columns, too."""
    x, dy = draw(0, shape)
    assert run(x, dy, num_threads=n) == run(x, dy, num_threads=1)


@pytest.mark.parametrize(
    "order",
    ["torch, lnfast", "lnfast, torch", "sklearn.cluster, lnfast", "lnfast, sklearn.cluster"],
)
def test_beside_other_openmp_users(order):
    """One process, both import orders, a parallel call in each, and each is left as it was."""
    other = order.replace("lnfast", "").strip(", ").split(".")[0]
    pytest.importorskip(other)
    code = f"""
        import {order}
        import numpy as np
        x = np.random.default_rng(0).standard_normal((2000, 64)).astype(np.float32)
        def others():
            if {other!r} == "torch":
                y = torch.nn.functional.layer_norm(torch.from_numpy(x), (64,)).numpy()
                return y.tobytes(), torch.get_num_threads()
            model = sklearn.cluster.KMeans(3, n_init=1, random_state=0).fit(x)
            return model.labels_.tobytes()
        alone, threads = lnfast.layer_norm(x, 64, num_threads=1), lnfast.get_num_threads()
        beside = others()
        for _ in range(3):
            assert np.array_equal(lnfast.layer_norm(x, 64, num_threads=2), alone)
            assert others() == beside
        assert lnfast.get_num_threads() == threads
        print("both")
    """
    assert in_fresh_python(code) == "both"
