"""A program of benchmarks/programs tried: without lnfast, with it, without, with a faulty one.

Programs are tried in processes of their own: what they import has threads that the forks of other
tests fear, and Keras takes its backend when it is imported.
"""

import os
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import wraps
from inspect import signature
from multiprocessing import get_context
from unittest.mock import patch

import numpy as np
import programs

import lnfast

FORWARD = lnfast.layer_norm, lnfast.layer_norm_forward, lnfast.add_layer_norm_forward
BACKWARD = (lnfast.layer_norm_backward,)


@dataclass(frozen=True)
class Run:
    answers: object
    calls: int  # of the program's layer norm, whoever does it
    of_lnfast: Counter  # calls of lnfast's functions


@dataclass(frozen=True)
class Trial:
    name: str
    before: Run
    after: Run  # on lnfast
    again: Run  # after that
    difference: str | None  # what `compare` says of before and after
    noticed: dict[str, bool]  # whether it minds a fault, of those in functions that are called


def try_program(name):
    # On a busy machine small matrix products on several threads take ten times as long
    with patch.dict(os.environ, OPENBLAS_NUM_THREADS="1"):
        with ProcessPoolExecutor(1, get_context("spawn")) as process:
            return process.submit(_try, name).result()


def _try(name):
    program = programs.load(name).Program()
    before = run(program)
    with program.swap():
        after = run(program)
    again = run(program)
    noticed = {}
    for name_of_fault, (fault, functions) in FAULTS.items():
        if any(after.of_lnfast[function.__name__] for function in functions):
            with program.swap(), replaced(functions, fault):
                faulty = program.run()
            noticed[name_of_fault] = difference(program, before.answers, faulty) is not None
    found = difference(program, before.answers, after.answers)
    return Trial(name, before, after, again, found, noticed)


def run(program):
    calls = Counter()

    def counted(function):
        @wraps(function)
        def call(*arguments, **options):
            calls[function.__name__] += 1
            return function(*arguments, **options)

        return call

    with replaced(FORWARD + BACKWARD, counted), program.timed_layer_norm() as stopwatch:
        answers = program.run()
    return Run(answers, stopwatch.calls, calls)


def difference(program, before, after):
    """What `compare` says, None where it is content."""
    try:
        program.compare(before, after)
    except AssertionError as error:
        return str(error)
    return None


@contextmanager
def replaced(functions, replacement):
    """Those functions of lnfast replaced, wherever a module of lnfast has them."""
    modules = [m for name, m in sys.modules.items() if name.partition(".")[0] == "lnfast"]
    with ExitStack() as stack:
        for function in functions:
            new = replacement(function)
            for module in modules:
                for name in [n for n, value in vars(module).items() if value is function]:
                    stack.enter_context(patch.object(module, name, new))
        yield


def wrong_eps(function):
    def faulty(*arguments, **options):
        bound = signature(function).bind(*arguments, **options)
        bound.arguments["eps"] = 0.1
        return function(*bound.args, **bound.kwargs)

    return faulty


def not_normalized(function):
    def faulty(x, *arguments, **options):
        x = np.array(x)  # which `out` may be
        result = function(x, *arguments, **options)
        y = result[0] if isinstance(result, tuple) else result
        y[...] = x
        return result

    return faulty


def gradient_passed_on(function):
    def faulty(dy, *arguments, **options):
        _, *others = function(dy, *arguments, **options)
        return dy, *others

    return faulty


FAULTS = {
    "wrong_eps": (wrong_eps, FORWARD),
    "not_normalized": (not_normalized, FORWARD),
    "gradient_passed_on": (gradient_passed_on, BACKWARD),
}
