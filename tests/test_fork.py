"""After a fork: the child works, on one thread, with the right bits, whoever computed before.

Parents, children and grandchildren in every order, threads that fork, pools of every kind. What
forks is a new interpreter, since a child of pytest's process would not stand for a user's.
"""

import multiprocessing
import os
from pathlib import Path

import pytest
from runs import in_fresh_python, needs_fork

pytestmark = needs_fork

# `compute` calls both directions on several threads, and says whether the bits are right;
# `fork` runs what it is given in a child and says how that ended.
PRELUDE = """
    import os, signal, threading, warnings
    import numpy as np, lnfast
    warnings.simplefilter("ignore", DeprecationWarning)
    x, dy = np.random.default_rng(0).standard_normal((2, 512, 768)).astype(np.float32)

    def run(n):
        y, cache = lnfast.layer_norm_forward(x, 768, num_threads=n)
        results = y, *lnfast.layer_norm_backward(dy, cache, num_threads=n)
        return b"".join(a.tobytes() for a in results)

    expected = run(1)

    def compute():
        assert run(4) == expected and run(None) == expected

    def fork(work):
        child = os.fork()
        if child == 0:
            signal.alarm(20)  # one that hangs ends, and is told from the others by its status
            try:
                work()
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0, "a child hangs or fails"

    def in_thread(work):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
"""


def after_forks(code):
    return in_fresh_python(PRELUDE + code + "\n    print('right')") == "right"


@pytest.mark.parametrize(
    "order",
    [
        "compute(); fork(compute); compute()",
        "fork(compute); compute(); fork(compute)",  # the first child before any thread was woken
        "fork(compute); fork(lambda: None); compute()",
        "compute(); fork(lambda: (compute(), fork(compute), compute()))",
        "compute(); fork(lambda: fork(compute))",  # a grandchild of one that has not computed
        "fork(lambda: (compute(), fork(lambda: fork(compute))))",
        "compute(); fork(lambda: in_thread(compute)); compute()",
        "in_thread(compute); fork(compute)",
        "compute(); in_thread(lambda: fork(compute)); compute()",
        "in_thread(lambda: (compute(), fork(compute))); compute()",
        "lnfast.set_num_threads(2); compute(); fork(compute)",
    ],
)
def test_every_order(order):
    assert after_forks(f"    {order}")


def test_a_thread_that_forks_while_another_computes():
    code = """
    done = threading.Event()
    workers = [threading.Thread(target=lambda: [compute() for _ in iter(done.is_set, True)])]
    workers[0].start()
    in_thread(lambda: [fork(compute) for _ in range(8)])
    done.set()
    workers[0].join()
    """
    assert after_forks(code)


def test_the_main_thread_forks_while_threads_compute():
    code = """
    done = threading.Event()
    workers = [threading.Thread(target=lambda: [compute() for _ in iter(done.is_set, True)])
               for _ in range(3)]
    for worker in workers: worker.start()
    for _ in range(8): fork(compute)
    done.set()
    for worker in workers: worker.join()
    """
    assert after_forks(code)


def test_a_forked_child_says_that_it_has_one_thread():
    """The parent keeps its own, and no call of a child starts one."""
    code = """
    compute()
    before = lnfast.get_num_threads()

    def child():
        assert lnfast.get_num_threads() == lnfast.config()["num_threads"] == 1
        lnfast.set_num_threads(8)
        compute()
        assert lnfast.get_num_threads() == 1
        if os.path.exists("/proc/self/task"):
            assert len(os.listdir("/proc/self/task")) == 1
        fork(grandchild)

    def grandchild():
        compute()
        assert lnfast.get_num_threads() == 1

    fork(child)
    assert lnfast.get_num_threads() == before
    """
    assert after_forks(code)


@pytest.mark.parametrize(
    ("method", "computed_before"),
    [("fork", False), *((method, True) for method in multiprocessing.get_all_start_methods())],
)
def test_pool(method, computed_before):
    """Workers of every kind, two at once, from a parent that has computed or not."""
    path = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    code = f"""
    import multiprocessing
    import warnings
    import runs
    warnings.simplefilter("ignore", DeprecationWarning)
    x, dy = runs.draw()
    expected = [runs.run(*runs.draw(seed), num_threads=1) for seed in range(4)]
    if {computed_before}:
        assert runs.run(x, dy, num_threads=4) == runs.run(x, dy)
    with multiprocessing.get_context({method!r}).Pool(2) as pool:
        found = pool.map_async(runs.run_seed, range(4), chunksize=1).get(40)
    assert found == expected
    assert runs.run(x, dy, num_threads=4) == expected[0]
    print("right")
    """
    assert in_fresh_python(code, PYTHONPATH=os.pathsep.join(path)) == "right"
