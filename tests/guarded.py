"""Arrays at the edge of memory that may not be touched."""

import ctypes
import mmap

import numpy as np

PAGE = mmap.PAGESIZE
PROT_NONE = 0


class Guarded:
    """Arrays each of which a page without access follows at once (or precedes, for `first`)."""

    def __init__(self):
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.rooms = []

    def array(self, source, first=False):
        """A copy of source beside a page that may not be touched."""
        pages = -(-source.nbytes // PAGE) + 1
        room = mmap.mmap(-1, pages * PAGE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(room))
        guard = start if first else start + (pages - 1) * PAGE
        offset = PAGE if first else (pages - 1) * PAGE - source.nbytes
        array = np.frombuffer(room, source.dtype, source.size, offset).reshape(source.shape)
        array[...] = source
        assert self.libc.mprotect(ctypes.c_void_p(guard), PAGE, PROT_NONE) == 0
        self.rooms.append(room)
        return array
