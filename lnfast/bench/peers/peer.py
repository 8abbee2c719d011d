"""What every peer is: a name, what it needs, and its calls."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]
Call = Callable[[], Any]

# Elements from which hand-written code starts its threads, which costs some 2 µs: on two cores the
# Numba forward pass breaks even between 12 and 37 thousand.
PARALLEL_ELEMENTS = 2**14


class Peer:
    """One implementation: what it is called, what it needs, and its calls for either norm."""

    name: str  # in tables and messages
    module: str  # what it imports, so that a missing one is found without importing it
    package: str  # what pip calls it
    is_copy = False  # whether it moves the bytes of x and y, or x, dy and dx, and computes nothing
    is_library = False  # whether a program could call it in place of lnfast, as it comes
    refills = False  # whether its calls fill one output again and again, none freshly allocated
    by_default = True  # whether it takes part without being named
    num_threads = 1  # what the calls it prepares use

    def missing(self, num_threads: int | None = None) -> str | None:
        """Why this peer cannot run here, on so many threads if given; None if it can."""
        if find_spec(self.module) is None:
            return f"{self.package} is not installed"
        return None

    def version(self) -> str:
        return version(self.package)

    @contextmanager
    def on_threads(self, num_threads: int) -> Iterator[None]:
        """Within it the peer prepares and makes its calls, on num_threads threads.

        What it changes for the whole process is put back.
        """
        before, self.num_threads = self.num_threads, num_threads
        try:
            yield
        finally:
            self.num_threads = before

    def forward(self, x: Array, weight: Array, bias: Array, eps: float) -> Call | None:
        """A call that returns y; None where the peer has no forward pass for these arrays."""
        raise NotImplementedError

    def backward(self, dy: Array, x: Array, weight: Array, eps: float) -> Call | None:
        """A call that returns dx, dweight, dbias, all of the forward pass known beforehand."""
        raise NotImplementedError

    def rms_forward(self, x: Array, weight: Array, eps: float) -> Call | None:
        """The same for RMSNorm; None where the peer has none. A copy is never asked."""
        return None

    def rms_backward(self, dy: Array, x: Array, weight: Array, eps: float) -> Call | None:
        """A call that returns dx, dweight."""
        return None

    def arrays(self, result: Any) -> tuple[Array, ...]:
        """What a call returned, as NumPy arrays: (y,), (dx, dweight, dbias) or (dx, dweight)."""
        return result if isinstance(result, tuple) else (result,)
