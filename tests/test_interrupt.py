"""Ctrl-C: a call that it meets ends whole, and KeyboardInterrupt comes right after it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from runs import fresh_python

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")

COMMAND = str(Path(sys.executable).with_name("lnfast"))

# A long call: as many rows that are worked out exactly as take most of a second on this machine,
# met by a signal soon after its begin. The rows are alike, and so are their results.
LONG_CALL = """
import os, signal, sys, threading, time
import numpy as np, lnfast

row = np.random.default_rng(0).standard_normal((1, 1000)) * 1e300
y, (_, _, _, mean, rstd, *_) = lnfast.layer_norm_forward(row, 1000)
dx, _, _ = lnfast.layer_norm_backward(row, lnfast.LayerNormCache(row, 1000, None, mean, rstd))
rows = 512

def prepare():
    global x, cache, out
    x, mean_of_all, rstd_of_all = (np.repeat(a, rows, axis=0) for a in (row, mean, rstd))
    cache = lnfast.LayerNormCache(x, 1000, None, mean_of_all, rstd_of_all)
    out = np.full_like(x, 7)

sent = []
def interrupt():
    time.sleep(0.1)
    sent.append(time.perf_counter())
    os.kill(os.getpid(), signal.SIGINT)

prepare()
took = []
for _ in range(5):  # the least of them: others may want the processor too
    start = time.perf_counter()
    {call}
    took.append(time.perf_counter() - start)
rows = int(rows * max(1, 0.7 / min(took)))
prepare()
sender = threading.Thread(target=interrupt)
sender.start()
try:
    {call}
    print("nobody was interrupted")
except KeyboardInterrupt:
    if time.perf_counter() - sent[0] <= 0.001:
        sys.exit("missed")
    assert np.array_equal(out, np.broadcast_to({result}, out.shape))
    assert np.array_equal(lnfast.layer_norm(x[:9], 1000), np.repeat(y, 9, axis=0))
    print("interrupted", flush=True)
    raise
"""
CALLS = [
    ("lnfast.layer_norm(x, 1000, out=out, num_threads=2)", "y"),
    ("lnfast.layer_norm_backward(x, cache, out=out, num_threads=1)", "dx"),
]


@pytest.mark.parametrize(("call", "result"), CALLS)
def test_a_call_that_is_met_ends_whole(call, result):
    """And the process then ends as Python's do, by the signal."""
    for _ in range(3):  # a busy machine may hold back either thread until the call has ended
        done = fresh_python(LONG_CALL.format(call=call, result=result))
        if done.stderr != "missed\n":
            break
    assert (done.stdout, done.returncode) == ("interrupted\n", -signal.SIGINT), done.stderr
    assert done.stderr.endswith("KeyboardInterrupt\n")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["demo"], "1. One row"),
        # the table's heading, after which the first measurement begins
        (["bench", "--peers", "numpy", "--seconds", "30", "--shape", "64x64"], "shape"),
    ],
)
def test_command(arguments, line):
    with subprocess.Popen([COMMAND, *arguments], stdout=-1, stderr=-1, encoding="utf-8") as process:
        try:
            for text in process.stdout:
                if text.startswith(line):
                    break
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=30)
        finally:
            process.kill()
    assert (err, process.returncode) == ("", 130)


def test_the_command_imports_before_it_works():
    """The import of numpy.random, put off to its first use, can lose a Ctrl-C that it meets."""
    assert "numpy.random" in fresh_python("import sys, lnfast.cli; print(*sys.modules)").stdout
