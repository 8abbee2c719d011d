"""No footprints: import and calls leave the process as it was, and the import is quick."""

import os

import pytest
from runs import in_fresh_python, needs_linux, needs_mxcsr, needs_openmp

# What belongs to the process or to all its code, by name. `state()` in a new interpreter.
STATE = """
import atexit, ctypes, gc, locale, logging, os, random, resource, signal, sys, threading, warnings
import decimal
import numpy as np

def state():
    found = {
        "environment": dict(os.environ),
        "warning filters": list(warnings.filters),
        "what shows a warning": warnings.showwarning,
        "errors of NumPy": (np.geterr(), np.geterrcall()),
        "printing of NumPy": str(np.get_printoptions()),
        "random state of NumPy": np.random.get_state()[1].tobytes(),
        "random state": random.getstate(),
        "decimal context": str(decimal.getcontext()),
        "signal handlers": [signal.getsignal(number) for number in signal.valid_signals()],
        "search path": (list(sys.path), list(sys.meta_path), list(sys.path_hooks)),
        "hooks": (sys.excepthook, sys.displayhook, sys.unraisablehook, threading.excepthook),
        "tracing": (sys.gettrace(), sys.getprofile(), threading.gettrace()),
        "streams": (sys.stdin, sys.stdout, sys.stderr),
        "interpreter": (sys.getswitchinterval(), sys.getrecursionlimit(), sys.getdlopenflags()),
        "collector": (gc.isenabled(), gc.get_threshold(), len(gc.callbacks)),
        "exit functions": atexit._ncallbacks(),
        "builtins": set(vars(__builtins__)),
        "logging": (logging.root.level, list(logging.root.handlers)),
        "locale": locale.setlocale(locale.LC_ALL),
        "folder": (os.getcwd(), sorted(os.listdir())),
        "limits": [
            resource.getrlimit(number)
            for name, number in vars(resource).items()
            if name.startswith("RLIMIT_")
        ],
        "Python's threads": threading.active_count(),
    }
    if sys.platform == "linux":
        with open("/proc/self/status") as lines:
            status = dict(line.split(":", 1) for line in lines)
        found["signals"] = {name: status[name] for name in ("SigBlk", "SigIgn", "SigCgt")}
        found["umask"] = status["Umask"]
        found["threads"] = status["Threads"]
        found["priority"] = os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0)
        found["affinity"] = os.sched_getaffinity(0)
        found["open files"] = sorted(os.listdir("/proc/self/fd"))
        if os.uname().machine == "x86_64":
            words = (ctypes.c_uint32 * 8)()
            ctypes.CDLL("libm.so.6").fegetenv(words)
            found["floating-point mode"] = words[0] & 0x0f3f, words[7] & ~0x3f  # without the flags
    return found

def compare(before):
    after = state()
    return [name for name in before if before[name] != after[name]]
"""

# Small, since large ones may start OpenMP's threads: those have tests of their own.
CALLS = """
    x = np.array([[3e38, -3e38, 0], [np.nan, 1, 2], [np.inf, 0, 1], [5, 5, 5]], np.float32)
    for a in (x, x.astype(float), x[::-1, ::-1], np.ones((40, 1000), np.float32)):
        cols = a.shape[1]
        layer = lnfast.LayerNorm(cols)
        lnfast.layer_norm(a, cols, out=np.empty_like(a), num_threads=1)
        y, cache = lnfast.layer_norm_forward(a, cols, eps=0)
        lnfast.layer_norm_backward(y, cache)
        layer.backward(a, layer.forward(a)[1])
        lnfast.reference.layer_norm_backward(y, cache)
    for wrong in (dict(x="text"), dict(x=x, normalized_shape=4), dict(x=x, num_threads=0)):
        try:
            lnfast.layer_norm(**wrong)
        except (TypeError, ValueError):
            pass
        else:
            raise AssertionError(wrong)
    lnfast.config()
    lnfast.set_num_threads(1)
    lnfast.set_num_threads(None)
"""


# What a new interpreter needs of pytest's environment, in which lnfast may have left its own.
NEEDED = "PATH", "HOME", "PYTHON", "LD_", "LNFAST_"


def changed_by(code, tmp_path, setting="", **environment):
    """The names of what `code` changes, in a folder of its own; nothing is printed."""
    clean = {name: None for name in os.environ if not name.startswith(NEEDED)}
    text = f"{STATE}\n{setting}\nbefore = state()\nif True:\n    {code}\n"
    text += "print(*compare(before), sep=', ')"
    return in_fresh_python(text, "-B", cwd=tmp_path, **clean | environment)


pytestmark = needs_linux


def test_import(tmp_path):
    assert changed_by("import lnfast", tmp_path) == ""


def test_import_brings_numpy_alone():
    """No adapter, and no package of an extra, though it be installed."""
    code = """
    import sys
    before = set(sys.modules)
    import lnfast
    brought = [n for n in set(sys.modules) - before if getattr(sys.modules[n], "__file__", None)]
    packages = {name.partition(".")[0] for name in brought} - set(sys.stdlib_module_names)
    print(*sorted(packages), *[name for name in brought if name.startswith("lnfast.integrations")])
    """
    assert in_fresh_python(code) == "lnfast numpy"


@pytest.mark.parametrize("errors", ["warn", "raise"])
def test_calls(tmp_path, errors):
    """With NaN, infinity, overflow, and errors; NumPy's own settings are the user's."""
    setting = f"np.seterr(all={errors!r}); warnings.simplefilter('error')"
    assert changed_by(f"import lnfast\n{CALLS}", tmp_path, setting) == ""


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("os.environ['OMP_NUM_THREADS'] = '1'", "environment"),
        ("warnings.simplefilter('ignore', ResourceWarning)", "warning filters"),
        ("np.seterr(all='ignore')", "errors of NumPy"),
        ("np.random.rand()", "random state of NumPy"),
        ("signal.signal(signal.SIGINT, signal.SIG_DFL)", "signal handlers, signals"),
        ("ctypes.CDLL(None).signal(signal.SIGUSR1, 1)", "signals"),
        ("sys.path.append('.')", "search path"),
        ("open('file', 'w').close()", "folder"),
        ("os.open('/dev/null', os.O_RDONLY)", "open files"),
        ("locale.setlocale(locale.LC_ALL, 'C')", "locale"),
        ("atexit.register(print, end='')", "exit functions"),
        ("os.umask(0o77)", "umask"),
        ("os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])", "affinity"),
        (
            "threading.Thread(target=threading.Event().wait, args=(9,), daemon=True).start()",
            "Python's threads, threads",
        ),
    ],
)
def test_a_footprint_would_show(code, names, tmp_path):
    if names == "affinity" and changed_by(code, tmp_path) == "":
        pytest.skip("one processor")
    assert changed_by(code, tmp_path, LC_ALL="C.UTF-8") == names


@needs_mxcsr
@pytest.mark.parametrize("function", ["fesetround(0x800)", "feenableexcept(4)"])
def test_a_mode_would_show(function, tmp_path):
    code = f"ctypes.CDLL('libm.so.6').{function}"
    assert changed_by(code, tmp_path) == "floating-point mode"


@needs_openmp
def test_openmp_is_left_as_it_was(tmp_path):
    """The number of threads that others get, and whether it may change: before and after."""
    code = """
        import ctypes, os
        import numpy as np, lnfast
        names = {line.split()[-1] for line in open("/proc/self/maps") if "omp" in line}
        openmp = [ctypes.CDLL(name) for name in names if "/libgomp" in name or "/libomp" in name]
        def settings():
            return [
                (lib.omp_get_max_threads(), lib.omp_get_dynamic(), lib.omp_get_max_active_levels())
                for lib in openmp
            ]
        assert openmp and settings()[0][0] == 5
        first = settings()
        x = np.ones((2000, 256), np.float32)
        for n in (None, 1, 2, 3):
            lnfast.set_num_threads(n)
            lnfast.layer_norm(x, 256, num_threads=n)
            lnfast.layer_norm(x, 256)
            assert settings() == first
        print("same")
    """
    assert in_fresh_python(code, OMP_NUM_THREADS="5") == "same"


def test_nothing_is_written_and_nobody_is_asked(tmp_path):
    """No file is opened for writing, no process started, no address looked up."""
    code = """
        import sys, numpy as np
        heard = []
        def listen(event, arguments):
            if event == "open" and set(str(arguments[1])) & set("wax+"):
                heard.append(arguments)
            if event.split(".")[0] in ("socket", "subprocess", "shutil", "tempfile", "urllib"):
                heard.append(event)
            if event in ("os.system", "os.exec", "os.fork", "os.posix_spawn", "os.remove"):
                heard.append(event)
        sys.addaudithook(listen)
        import lnfast
    """ + CALLS.replace("\n", "\n    ")
    assert in_fresh_python(code + "\n        print(heard)", "-B", cwd=tmp_path) == "[]"


def test_import_time():
    """Less than 30 ms beyond NumPy's, of this thread's time: BLAS starts threads of its own."""
    code = """
        import time, numpy
        start = time.thread_time()
        import lnfast
        print(time.thread_time() - start)
    """
    assert min(float(in_fresh_python(code)) for _ in range(7)) < 0.030
