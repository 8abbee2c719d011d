"""The Cython kernels: a plan of row blocks, prange over it, how many threads. Knows OpenMP and processes.

Nothing here holds the GIL, raises, or looks at a Python object. Work is split by shape, never by thread: forward's split does
not show in its bits, backward's blocks depend on the numbers of rows and columns alone.
"""
from cython.parallel cimport prange
from libc.math cimport NAN
from libc.stdlib cimport free, malloc

cdef extern from "kernels.h" nogil:
    ctypedef void ln_forward(const void *, const void *, const void *, Py_ssize_t, Py_ssize_t, Py_ssize_t,
                             double, int, void *, double *, double *) noexcept
    ctypedef void ln_backward(const void *, const void *, const void *, const double *, const double *,
                              Py_ssize_t, Py_ssize_t, Py_ssize_t, int, void *, double *) noexcept
    ctypedef void ln_fold(const double *, Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t, void *, void *) noexcept
    ctypedef struct ln_rows:
        ln_forward *forward
        ln_backward *backward
        ln_fold *fold
        int planes
    int ln_choose(const char *name)
    const char *ln_isa()
    const char *ln_isa_at(int i)
    const ln_rows *ln_rows_f32()
    const ln_rows *ln_rows_f64()

cdef extern from * nogil:
    """
    #ifdef _OPENMP
    #include <omp.h>
    enum { ln_openmp = 1 };
    #else
    enum { ln_openmp = 0 };
    static int omp_get_max_threads(void) { return 1; }
    static int omp_get_num_procs(void) { return 1; }
    #endif

    #if defined(__linux__)
    #include <sched.h>
    #endif
    #if defined(__unix__) || defined(__APPLE__)
    #include <pthread.h>
    #endif

    /* The process's state: a cap on the threads of a call, the container's quota (0: none), whether this is a forked child. */
    static int ln_thread_cap = 0, ln_cpu_quota = 0, ln_forked = 0;

    static void ln_after_fork(void) { ln_forked = 1; }

    /* The OpenMP threads of the parent are not there in a child, and its runtime may wait for them: a child works on one. */
    static void ln_watch_forks(void) {
    #if defined(__unix__) || defined(__APPLE__)
        pthread_atfork(NULL, NULL, ln_after_fork);
    #endif
    }

    static void ln_cap_threads(int n) { ln_thread_cap = n; }
    static void ln_set_quota(int n) { ln_cpu_quota = n; }

    /* CPUs this thread may run on */
    static int ln_allowed_cpus(void) {
    #if defined(__linux__)
        cpu_set_t set;
        if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
    #endif
        return omp_get_num_procs();
    }
    """
    enum: ln_openmp
    int omp_get_max_threads()
    int ln_thread_cap
    int ln_cpu_quota
    int ln_forked
    void ln_cap_threads(int n)
    void ln_set_quota(int n)
    void ln_watch_forks()
    int ln_allowed_cpus()

# Elements one thread takes before a second is woken. Two threads break even at 23,000 elements (benchmarks/threads.py), but until
# 65,000 they gain less than a third, and after its work a thread spins for some milliseconds on a core that NumPy's BLAS may want
# next: a sentence encoder with 25,000 elements a call ran four times slower for it.
cdef enum:
    ELEMENTS_PER_THREAD = 32768
# Elements of a forward task where there are more tasks than threads.
cdef enum:
    ELEMENTS_PER_TASK = 131072
# Rows and elements of a backward block, at least: enough that adding its sums to the others' costs little. All four are part of
# the bits.
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
# Bytes that a call reads and writes from which it reads ahead: what the second-level caches hold; a tenth of the time forward, a third
# backward near the next mark. And from which it writes past the caches: what a last-level cache holds. Beyond it that takes 0.6 to
# 0.8 of the time, within it up to twice.
cdef enum:
    AHEAD_BYTES = 2097152
    STREAM_BYTES = 33554432


cdef inline int plan_far(Py_ssize_t size) noexcept nogil:
    """How far away the arrays of a call that moves `size` bytes are: kernels.h."""
    return 2 if size >= STREAM_BYTES else 1 if size >= AHEAD_BYTES else 0


cdef inline int available_threads() noexcept nogil:
    """What OpenMP says, capped by set_num_threads, the affinity and the container's quota; 1 in a forked child."""
    cdef int n = omp_get_max_threads()
    cdef int cpus = ln_allowed_cpus()
    if ln_forked:
        return 1
    if 0 < ln_thread_cap < n:
        n = ln_thread_cap
    if 0 < ln_cpu_quota < n:
        n = ln_cpu_quota
    return max(1, min(n, cpus))


cdef inline int plan_threads(Py_ssize_t elements, int asked) noexcept nogil:
    """Threads of one call: `asked` as it is, or for 0 what is available and the work can use."""
    cdef Py_ssize_t useful = elements // ELEMENTS_PER_THREAD
    if asked > 0:
        return 1 if ln_forked else asked
    if useful < 2:
        return 1
    return <int>min(useful, <Py_ssize_t>available_threads())


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
        for task in range(rows):
            if mean != NULL:
                mean[task] = NAN
            if rstd != NULL:
                rstd[task] = NAN
        return
    if threads == 1:
        kernels.forward(x, weight, bias, 0, rows, cols, eps, far, y, mean, rstd)
        return
    tasks = min(rows, max(<Py_ssize_t>threads, rows * cols // ELEMENTS_PER_TASK))
    each = (rows + tasks - 1) // tasks
    tasks = (rows + each - 1) // each
    threads = <int>min(<Py_ssize_t>threads, tasks)
    for task in prange(tasks, schedule="dynamic", num_threads=threads):
        kernels.forward(x, weight, bias, task * each, min(rows, (task + 1) * each), cols, eps, far, y, mean, rstd)


cdef inline int run_backward(const ln_rows *kernels, const void *x, const void *dy, const void *weight, const double *mean,
                             const double *rstd, Py_ssize_t rows, Py_ssize_t cols, int asked, int itemsize, void *dx,
                             void *dweight, void *dbias) noexcept nogil:
    """dx, dweight and dbias, each of which may be NULL; -1 where the blocks' sums find no memory, and nothing was written."""
    cdef Py_ssize_t block, blocks, each, part
    cdef Py_ssize_t plane = kernels.planes * cols
    cdef int far = plan_far(3 * rows * cols * itemsize)
    cdef int threads = plan_threads(rows * cols, asked)
    cdef int wanted = dweight != NULL or dbias != NULL
    cdef double *sums = NULL
    if cols == 0 or (dx == NULL and not wanted):
        return 0
    if rows == 0:
        clear(dweight, cols * itemsize)
        clear(dbias, cols * itemsize)
        return 0
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


cdef inline void clear(void *p, Py_ssize_t size) noexcept nogil:
    """`size` bytes of zeros at p, if p is there."""
    cdef Py_ssize_t i
    if p != NULL:
        for i in range(size):
            (<char *>p)[i] = 0
