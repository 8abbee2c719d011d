"""The Cython kernels: a plan of row blocks or column ranges, and prange over it. Knows OpenMP.

Nothing here holds the GIL, raises, or looks at a Python object. Work is split by shape, never by thread: the splits of forward
and of columns do not show in the bits, backward's blocks depend on the numbers of rows and columns alone.
"""
from cython.parallel cimport prange
from libc.math cimport NAN
from libc.stdlib cimport free, malloc

from threads cimport ELEMENTS_PER_THREAD, plan_threads

cdef extern from "kernels.h" nogil:
    enum: LN_NEAR
    enum: LN_BEYOND_CORE
    enum: LN_IN_MEMORY
    enum: LN_LINE_BYTES
    enum: LN_LAYER_NORM
    enum: LN_RMS_NORM
    enum: LN_FLOAT32
    enum: LN_FLOAT64
    ctypedef void ln_forward(const void *, const void *, const void *, Py_ssize_t, Py_ssize_t, Py_ssize_t,
                             double, int, void *, double *, double *) noexcept
    ctypedef void ln_backward(const void *, const void *, const void *, const double *, const double *,
                              Py_ssize_t, Py_ssize_t, Py_ssize_t, int, void *, double *) noexcept
    ctypedef void ln_constants(const void *, const void *, const void *, const double *, const double *,
                               Py_ssize_t, Py_ssize_t, Py_ssize_t, int, int, void *) noexcept
    ctypedef void ln_columns(const void *, const void *, const void *, const void *, Py_ssize_t, Py_ssize_t, Py_ssize_t,
                             Py_ssize_t, int, int, void *, double *, void *, void *) noexcept
    ctypedef void ln_fold(const double *, Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t, void *, void *) noexcept
    enum: LN_FLOAT16
    enum: LN_BFLOAT16
    enum: LN_AXES
    ctypedef struct ln_view:
        char *data
        int dtype
        int itemsize
        int row_axes
        int col_axes
        Py_ssize_t row_lengths[LN_AXES]
        Py_ssize_t row_strides[LN_AXES]
        Py_ssize_t col_lengths[LN_AXES]
        Py_ssize_t col_strides[LN_AXES]
    ctypedef struct ln_forward_plan:
        ln_view x
        ln_view residual
        ln_view mask
        ln_view weight
        ln_view bias
        Py_ssize_t rows
        Py_ssize_t cols
        Py_ssize_t block
        double eps
        int far
        ln_view sum
        ln_view y
        double *mean
        double *rstd
    ctypedef struct ln_backward_plan:
        ln_view x
        ln_view dy
        ln_view mask
        ln_view weight
        ln_view ds
        const double *mean
        const double *rstd
        Py_ssize_t rows
        Py_ssize_t cols
        Py_ssize_t block
        int far
        ln_view dx
    ctypedef void ln_forward_views(const ln_forward_plan *, Py_ssize_t, Py_ssize_t, void *) noexcept
    ctypedef void ln_backward_views(const ln_backward_plan *, Py_ssize_t, Py_ssize_t, void *, double *) noexcept
    int ln_is_contiguous(const ln_view *)
    int ln_runs_across(const ln_view *)
    int ln_has_plain_rows(const ln_view *, int)
    int ln_is_plain(const ln_view *, Py_ssize_t, int)
    Py_ssize_t ln_block_rows(Py_ssize_t, int, int)
    Py_ssize_t ln_backward_rows(Py_ssize_t, int, int)
    size_t ln_room(Py_ssize_t, Py_ssize_t)
    enum: LN_PIECES
    enum: LN_BACKWARD_SUMS
    enum: LN_DOUBLE_BACKWARD
    ctypedef struct ln_operands:
        const void *x
        const void *dy
        const void *weight
        const void *bias
        const void *ddx
        const void *ddweight
        const void *ddbias
        const double *shift
        const double *count
        const double *rstd
        double *mean
        double *m2
        double *sum_h
        double *sum_h_xhat
        void *out
        void *gx
        Py_ssize_t cols
        int far
    ctypedef void ln_piece(const ln_operands *, Py_ssize_t, Py_ssize_t, double *) noexcept
    ctypedef void ln_narrow(const void *, Py_ssize_t, int, void *) noexcept
    ctypedef struct ln_rows:
        ln_forward *forward
        ln_backward *backward
        ln_constants *constants
        ln_columns *columns
        ln_fold *fold
        int planes
        int group
        size_t constants_size
        ln_forward_views *forward_views
        ln_backward_views *backward_views
        ln_narrow *narrow
        ln_piece *pieces[LN_PIECES]
    int ln_choose(const char *name)
    const char *ln_isa()
    const char *ln_isa_at(int i)
    const ln_rows *ln_rows_of(int norm, int dtype)

# Elements of a forward task where a thread has several.
cdef enum:
    ELEMENTS_PER_TASK = 131072
# Rows or elements that a backward block may have, whichever are more rows, until there are MOST_BLOCKS: enough that adding its sums
# to the others' costs little. All four are part of the bits.
cdef enum:
    ROWS_PER_BLOCK = 32
    ELEMENTS_PER_BLOCK = 65536
    MOST_BLOCKS = 64
    # float64 elements of all blocks' sums together: 16 MiB
    MOST_SUMS = 2097152
# Times that a thread comes back for more blocks, in a large call: enough to even out what slows one of them. In a small one that
# would cost more than it saves.
cdef enum:
    TURNS = 4
    ELEMENTS_FOR_TURNS = 524288
# Columns that one thread folds at least: whole cache lines of float32.
cdef enum:
    FOLD_COLUMNS = 64
# Bytes of a row from which on backward goes by columns: one row's x no longer fits the second-level cache; or, where there would be
# one block and thus one thread, those that are worth it. Part of the bits.
cdef enum:
    LONG_BYTES = 1048576
    LONG_BLOCK_BYTES = 65536
# Of such rows, bytes of x and dy that are read for their constants, then again for their columns: half a last-level cache; and
# columns of a task, at least.
cdef enum:
    BAND_BYTES = 16777216
    TASK_COLUMNS = 4096
# Bytes that a call reads and writes from which it reads ahead: what the second-level caches hold; a tenth of the time forward, a
# third backward near the next mark. And from which it writes past the caches: what a last-level cache holds. Beyond it that takes
# 0.6 to 0.8 of the time, within it up to twice.
cdef enum:
    AHEAD_BYTES = 2097152
    STREAM_BYTES = 33554432


cdef inline int plan_far(Py_ssize_t size) noexcept nogil:
    """How far away the arrays of a call that moves `size` bytes are: kernels.h."""
    return LN_IN_MEMORY if size >= STREAM_BYTES else LN_BEYOND_CORE if size >= AHEAD_BYTES else LN_NEAR


cdef inline Py_ssize_t plan_rows(Py_ssize_t rows, Py_ssize_t cols, int planes) noexcept nogil:
    """Rows of a backward block (the last may have fewer), from the shape alone; a multiple of the kernels' strip of four."""
    cdef Py_ssize_t most = max(<Py_ssize_t>1, min(<Py_ssize_t>MOST_BLOCKS, MOST_SUMS // (planes * cols)))
    cdef Py_ssize_t least = max(<Py_ssize_t>ROWS_PER_BLOCK, ELEMENTS_PER_BLOCK // cols)
    cdef Py_ssize_t blocks = 1, each
    while blocks * least < rows:  # a power of two: as many for each of two, four, eight threads
        blocks *= 2
    blocks = min(most, blocks)
    each = (rows + blocks - 1) // blocks
    return (each + 3) // 4 * 4


cdef inline Py_ssize_t plan_task(Py_ssize_t rows, Py_ssize_t cols, int threads, Py_ssize_t unit) noexcept nogil:
    """Rows of a forward task, a multiple of `unit`: as many tasks for one thread as for another."""
    cdef Py_ssize_t turns = max(<Py_ssize_t>1, rows * cols // ELEMENTS_PER_TASK // threads), tasks = threads * turns
    cdef Py_ssize_t each = (rows + tasks - 1) // tasks
    return (each + unit - 1) // unit * unit


cdef inline void run_forward(const ln_rows *kernels, const void *x, const void *weight, const void *bias, Py_ssize_t rows,
                             Py_ssize_t cols, double eps, int asked, int itemsize, void *y, double *mean,
                             double *rstd) noexcept nogil:
    """y, mean and rstd of all rows; mean and rstd may be NULL."""
    cdef Py_ssize_t task, tasks, each
    cdef int far = plan_far(2 * rows * cols * itemsize)
    cdef int threads = plan_threads(rows * cols, asked)
    if rows == 0:
        return
    if cols == 0:
        fill(mean, rows, NAN)
        fill(rstd, rows, NAN)
        return
    if threads == 1:
        kernels.forward(x, weight, bias, 0, rows, cols, eps, far, y, mean, rstd)
        return
    each = plan_task(rows, cols, threads, 1)
    tasks = (rows + each - 1) // each
    threads = <int>min(<Py_ssize_t>threads, tasks)
    for task in prange(tasks, schedule="dynamic", num_threads=threads):
        kernels.forward(x, weight, bias, task * each, min(rows, (task + 1) * each), cols, eps, far, y, mean, rstd)


cdef inline int run_backward(const ln_rows *kernels, const void *x, const void *dy, const void *weight, const double *mean,
                             const double *rstd, Py_ssize_t rows, Py_ssize_t cols, int asked, int itemsize, void *dx,
                             void *dweight, void *dbias) noexcept nogil:
    """dx, dweight and dbias, each of which may be NULL; -1 where the blocks' sums find no memory, and nothing was written."""
    cdef int threads = plan_threads(rows * cols, asked)
    cdef int far = plan_far(3 * rows * cols * itemsize)
    if cols == 0 or (dx == NULL and dweight == NULL and dbias == NULL):
        return 0
    if rows == 0:
        clear(dweight, cols * itemsize)
        clear(dbias, cols * itemsize)
        return 0
    if cols * itemsize >= (LONG_BLOCK_BYTES if rows <= ROWS_PER_BLOCK else LONG_BYTES):
        return run_columns(kernels, x, dy, weight, mean, rstd, rows, cols, threads, far, itemsize, dx, dweight, dbias)
    return run_blocks(kernels, x, dy, weight, mean, rstd, rows, cols, threads, far, dx, dweight, dbias)


cdef inline int run_blocks(const ln_rows *kernels, const void *x, const void *dy, const void *weight, const double *mean,
                           const double *rstd, Py_ssize_t rows, Py_ssize_t cols, int threads, int far, void *dx, void *dweight,
                           void *dbias) noexcept nogil:
    """By blocks of rows, whose sums are then folded."""
    cdef Py_ssize_t block, blocks, each, part
    cdef Py_ssize_t plane = kernels.planes * cols
    cdef int wanted = dweight != NULL or dbias != NULL
    cdef double *sums = NULL
    each = plan_rows(rows, cols, kernels.planes)
    blocks = (rows + each - 1) // each
    if wanted:
        sums = <double *>malloc(blocks * plane * sizeof(double))
        if sums == NULL:
            return -1
    if threads == 1 or blocks == 1:
        for block in range(blocks):
            kernels.backward(x, dy, weight, mean, rstd, block * each, min(rows, (block + 1) * each), cols, far, dx,
                             sums + block * plane if wanted else NULL)
    else:
        threads = <int>min(<Py_ssize_t>threads, blocks)
        part = threads * (TURNS if rows * cols >= ELEMENTS_FOR_TURNS else 1)
        part = max(<Py_ssize_t>1, (blocks + part - 1) // part)
        for block in prange(blocks, schedule="dynamic", chunksize=part, num_threads=threads):
            kernels.backward(x, dy, weight, mean, rstd, block * each, min(rows, (block + 1) * each), cols, far, dx,
                             sums + block * plane if wanted else NULL)
    if wanted:
        if blocks * plane < 2 * ELEMENTS_PER_THREAD:
            threads = 1
        threads = <int>max(<Py_ssize_t>1, min(<Py_ssize_t>threads, cols // FOLD_COLUMNS))
        if threads == 1:
            kernels.fold(sums, blocks, 0, cols, cols, dweight, dbias)
        else:
            part = (cols + threads - 1) // threads
            for block in prange(threads, num_threads=threads):
                if block * part < cols:
                    kernels.fold(sums, blocks, block * part, min(cols, (block + 1) * part), cols, dweight, dbias)
        free(sums)
    return 0


cdef inline int run_columns(const ln_rows *kernels, const void *x, const void *dy, const void *weight, const double *mean,
                            const double *rstd, Py_ssize_t rows, Py_ssize_t cols, int threads, int far, int itemsize, void *dx,
                            void *dweight, void *dbias) noexcept nogil:
    """For long rows, band after band of them; sums go from one to the next, where there are more than one."""
    cdef Py_ssize_t group = kernels.group
    cdef Py_ssize_t band = min(rows, max(<Py_ssize_t>threads, BAND_BYTES // (2 * cols * itemsize * group)) * group)
    cdef Py_ssize_t first = 0, at
    cdef double *sums = NULL
    cdef void *constants = malloc((band + group - 1) // group * kernels.constants_size)
    if constants == NULL:
        return -1
    if band < rows and (dweight != NULL or dbias != NULL):
        sums = <double *>malloc(kernels.planes * cols * sizeof(double))
        if sums == NULL:
            free(constants)
            return -1
    while first < rows:
        at = first * cols * itemsize
        run_band(kernels, <const char *>x + at, <const char *>dy + at, weight, mean + first if mean != NULL else NULL, rstd + first,
                 min(band, rows - first), cols, threads, far, first == 0, first + band >= rows,
                 <char *>dx + at if dx != NULL else NULL, constants, sums, dweight, dbias)
        first += band
    free(sums)
    free(constants)
    return 0


cdef inline void run_band(const ln_rows *kernels, const void *x, const void *dy, const void *weight, const double *mean,
                          const double *rstd, Py_ssize_t rows, Py_ssize_t cols, int threads, int far, int begins, int ends,
                          void *dx, void *constants, double *sums, void *dweight, void *dbias) noexcept nogil:
    """The rows' constants, group by group, then their columns, range by range; the gradients' totals after the last band."""
    cdef Py_ssize_t group = kernels.group, groups = (rows + group - 1) // group
    cdef Py_ssize_t each = max(<Py_ssize_t>TASK_COLUMNS, cols // (threads * TURNS) // TASK_COLUMNS * TASK_COLUMNS)
    cdef Py_ssize_t ranges = (cols + each - 1) // each, task
    if threads == 1:
        kernels.constants(x, dy, weight, mean, rstd, 0, rows, cols, far, dx != NULL, constants)
        for task in range(ranges):
            run_range(kernels, x, dy, weight, constants, rows, task * each, min(cols, (task + 1) * each), cols, far, begins, ends,
                      dx, sums, dweight, dbias)
    else:
        for task in prange(groups, schedule="dynamic", num_threads=<int>min(<Py_ssize_t>threads, groups)):
            kernels.constants(x, dy, weight, mean, rstd, task * group, min(rows, (task + 1) * group), cols, far, dx != NULL,
                              constants)
        for task in prange(ranges, schedule="dynamic", num_threads=<int>min(<Py_ssize_t>threads, ranges)):
            run_range(kernels, x, dy, weight, constants, rows, task * each, min(cols, (task + 1) * each), cols, far, begins, ends,
                      dx, sums, dweight, dbias)


cdef inline void run_range(const ln_rows *kernels, const void *x, const void *dy, const void *weight, const void *constants,
                           Py_ssize_t rows, Py_ssize_t first, Py_ssize_t last, Py_ssize_t cols, int far, int begins, int ends,
                           void *dx, double *sums, void *dweight, void *dbias) noexcept nogil:
    """Columns first ... last - 1 of a band."""
    kernels.columns(x, dy, weight, constants, rows, first, last, cols, far, begins, dx, sums, dweight, dbias)
    if ends and sums != NULL:
        kernels.fold(sums, 1, first, last, cols, dweight, dbias)


cdef inline void fill(double *p, Py_ssize_t count, double value) noexcept nogil:
    """`count` times `value` at p, if p is there."""
    cdef Py_ssize_t i
    if p != NULL:
        for i in range(count):
            p[i] = value


cdef inline void clear(void *p, Py_ssize_t size) noexcept nogil:
    """`size` bytes of zeros at p, if p is there."""
    cdef Py_ssize_t i
    if p != NULL:
        for i in range(size):
            (<char *>p)[i] = 0
