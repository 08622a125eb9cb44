/* Opens oneDNN so that its symbols bind to itself. PyTorch 2.15's libtorch_cpu.so exports templates
 * that its own oneDNN has in common with libdnnl.so; bound to those, dnnl_sgemm fails.
 * RTLD_DEEPBIND prefers a library's own symbols and those of the libraries that it needs, so it is
 * left out where the program replaces one of those. Not here: the calls (gemm_onednn.c,
 * conv_dnnl.c). */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "backends/kernels/dnnl.h"
#include "runtime/base/c_locale.h"

fy__dnnl_t fy__dnnl;
static char missing[256]; /* why oneDNN cannot be called; empty: it is open */

/* The name of the library that has the function, the same pointer each time; NULL: none has. */
static const char *home(void *scope, const char *name)
{
    Dl_info info;
    const void *function = dlsym(scope, name);
    return function && dladdr(function, &info) ? info.dli_fname : NULL;
}

/* - libstdc++ is opened before, without the flag: what its functions allocate, others free.
 * - A program's own `operator delete` would not get what its `operator new` allocates in libstdc++.
 *   That is harmless if both are of the library that has malloc (jemalloc).
 * - oneDNN needs libgomp, but must find Ferry's OpenMP first (clang: libomp): there is one team.
 * - Sanitizers have a dlopen that ends a process that uses the flag. */
static int binding(void)
{
    void *cxx = dlopen("libstdc++.so.6", RTLD_NOW);
    const char *deletes = home(RTLD_DEFAULT, "_ZdlPv"),
               *libomp = home(RTLD_DEFAULT, "__kmpc_fork_call");
    if (libomp) (void)dlopen(libomp, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL);
    if (libomp || home(RTLD_DEFAULT, "dlopen") != home(RTLD_DEFAULT, "dladdr") ||
        (deletes && deletes != home(cxx, "_ZdlPv") && deletes != home(RTLD_DEFAULT, "free")))
        return 0;
    return cxx ? RTLD_DEEPBIND : 0;
}

static void open_library(void)
{
    static const char file[] = FERRY_DNNL_FILE;
    const char *folder = strrchr(file, '/');
    const int flags = RTLD_NOW | RTLD_LOCAL | binding();
    void *library = dlopen(file, flags);
    if (!library && folder) library = dlopen(folder + 1, flags); /* on another machine */
    if (!library) {
        (void)snprintf(missing, sizeof missing, "oneDNN cannot be opened: %s", fy__dlerror());
        return;
    }
#define FIND(name)                                                                         \
    {                                                                                      \
        void *const symbol = dlsym(library, "dnnl_" #name);                                \
        if (!symbol) (void)snprintf(missing, sizeof missing, "oneDNN has no dnnl_" #name); \
        memcpy(&fy__dnnl.name, &symbol, sizeof symbol);                                    \
    }
    FY__DNNL_FUNCTIONS(FIND)
#undef FIND
}

int fy__dnnl_open(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_library);
    return missing[0] == 0;
}

const char *fy__onednn_has_none(void)
{
    return fy__dnnl_open() ? "oneDNN has only its reference loop for this shape on this processor"
                           : missing;
}
