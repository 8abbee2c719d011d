"""Unmodified programs from PyPI that have a layer norm in NumPy: as they are, and on lnfast.

Every module here is one program. It imports its packages only in `Program`, so that it can be
listed without them, and has

    NAME        what the program is called
    WHAT        what a run does, in a few words
    PACKAGES    the packages that it needs, by the names that are imported
    Program     the program, model and inputs loaded, with these methods

    swap()                    while inside, lnfast does its layer norm: one function or one layer of
                              the program is replaced, all else is as it was installed
    run()                     one whole unit of work; returns its answers, the same at every run
    timed_layer_norm()        while inside, the layer norm in force is timed: gives a Stopwatch
    compare(before, after)    AssertionError where answers differ by more than two right layer norms
                              explain; the tolerance stands there with its reason
"""

from contextlib import ExitStack, contextmanager
from functools import wraps
from importlib import import_module
from importlib.metadata import packages_distributions, version
from importlib.util import find_spec
from pkgutil import iter_modules
from time import perf_counter
from unittest.mock import patch

NAMES = [module.name for module in iter_modules(__path__)]


def load(name):
    """The module of a program."""
    return import_module(f"{__name__}.{name}")


def missing(module):
    """The packages that a program needs and that are not installed."""
    return [package for package in module.PACKAGES if find_spec(package) is None]


def versions(modules):
    """The version of each installed distribution that programs need."""
    names = packages_distributions()
    packages = [package for module in modules for package in module.PACKAGES]
    return {name: version(name) for package in packages for name in names.get(package, ())}


class Stopwatch:
    """Seconds spent in functions, and how often they were called."""

    def __init__(self):
        self.seconds = 0.0
        self.calls = 0

    def around(self, function):
        @wraps(function)
        def timed(*arguments, **options):
            start = perf_counter()
            try:
                return function(*arguments, **options)
            finally:
                self.seconds += perf_counter() - start
                self.calls += 1

        return timed


@contextmanager
def timed(*functions):
    """A Stopwatch on functions, each given as its owner and its name there, while inside."""
    stopwatch = Stopwatch()
    with ExitStack() as stack:
        for owner, name in functions:
            stack.enter_context(patch.object(owner, name, stopwatch.around(getattr(owner, name))))
        yield stopwatch
