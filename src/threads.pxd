"""How many threads a call gets. Knows OpenMP, processors, containers and forks. Does not know kernels."""

cdef extern from * nogil:
    """
    #ifdef _OPENMP
    #include <omp.h>
    enum { ln_openmp = 1 };
    #else
    enum { ln_openmp = 0 };
    static int omp_get_max_threads(void) { return 1; }
    static int omp_get_thread_limit(void) { return 1; }
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
    int omp_get_thread_limit()
    int ln_thread_cap
    int ln_cpu_quota
    int ln_forked
    void ln_cap_threads(int n)
    void ln_set_quota(int n)
    void ln_watch_forks()
    int ln_allowed_cpus()

# Elements one thread takes before a second is woken. Two threads break even at 16,000 elements and gain a half at 46,000
# (benchmarks/threads.py), but after its work a thread spins for some milliseconds on a core that NumPy's BLAS may want next: a
# sentence encoder with 25,000 elements a call ran four times slower for it.
cdef enum:
    ELEMENTS_PER_THREAD = 32768

cdef inline int available_threads() noexcept nogil:
    """What OpenMP says, capped by set_num_threads, the affinity and the container's quota; 1 in a forked child."""
    cdef int n = min(omp_get_max_threads(), omp_get_thread_limit())  # the first does not know of the second
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
