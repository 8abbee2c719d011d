"""How far a run has come, on stderr, where someone is there to see it."""

import sys
from importlib.util import find_spec
from typing import Any


class Progress:
    """A bar where tqdm is installed, else a counter; both make way for the lines of the table."""

    def __init__(self, unit: str) -> None:
        self.unit = unit
        self.visible = sys.stderr is not None and sys.stderr.isatty()
        self.bar: Any = None

    def starts(self, number: int, count: int, what: object) -> None:
        """The number-th of count begins."""
        if not self.visible:
            return
        if find_spec("tqdm") is None:
            print(f"\r\033[K{number}/{count}  {what}\r", end="", file=sys.stderr, flush=True)
            return
        if self.bar is None:
            from tqdm import tqdm

            self.bar = tqdm(total=count, unit=self.unit, leave=False, dynamic_ncols=True)
        self.bar.n = number - 1
        self.bar.set_description(str(what))

    def make_way(self) -> None:
        """A line is about to be printed where the bar stands."""
        if self.bar is not None:
            self.bar.clear()

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()
