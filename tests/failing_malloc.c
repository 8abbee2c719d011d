/* failing_malloc.c: a malloc that fails when it is told to, for callers in lnfast's extension alone. To be preloaded. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* Calls from the extension until one fails, 0: none does; those that it has made; and its blocks that are not freed yet. */
int calls_to_failure, calls, blocks;

static int is_ours(const void *caller) {
    Dl_info place;
    return dladdr(caller, &place) && strstr(place.dli_fname, "/lnfast/_api");
}

void *malloc(size_t size) {
    static void *(*next)(size_t);
    if (!next) next = dlsym(RTLD_NEXT, "malloc");
    if (is_ours(__builtin_return_address(0))) {
        ++calls;
        if (calls_to_failure && --calls_to_failure == 0) return NULL;
        ++blocks;
    }
    return next(size);
}

void free(void *p) {
    static void (*next)(void *);
    if (!next) next = dlsym(RTLD_NEXT, "free");
    if (p && is_ours(__builtin_return_address(0))) --blocks;
    next(p);
}
