/* Facts for `ferry info` about oneDNN: its version, its threading runtime, the instructions that it
 * may use.
 * Read at run time, because the loaded library may differ from the one that Ferry was compiled
 * with. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include <omp.h>

#include "backends/kernels/dnnl.h"

static const char *threads_of(unsigned runtime)
{
    switch (runtime) {
    case DNNL_RUNTIME_SEQ: return "none: it runs on one thread, whatever is configured";
    case DNNL_RUNTIME_OMP: return "OpenMP";
    case DNNL_RUNTIME_TBB: return "TBB: a second pool of threads beside Ferry's";
    case DNNL_RUNTIME_THREADPOOL:
        return "a thread pool, which Ferry does not provide: it runs on one thread";
    default: return "unknown to Ferry";
    }
}

static const char *isa_name(dnnl_cpu_isa_t isa)
{
    static const struct {
        dnnl_cpu_isa_t isa;
        const char *name;
    } names[] = {
        { dnnl_cpu_isa_sse41, "sse41" },
        { dnnl_cpu_isa_avx, "avx" },
        { dnnl_cpu_isa_avx2, "avx2" },
        { dnnl_cpu_isa_avx512_core, "avx512_core" },
        { dnnl_cpu_isa_avx512_core_vnni, "avx512_core_vnni" },
        { dnnl_cpu_isa_avx512_core_bf16, "avx512_core_bf16" },
        { dnnl_cpu_isa_avx2_vnni, "avx2_vnni" },
#if FERRY_DNNL_MAJOR >= 3
        { dnnl_cpu_isa_avx2_vnni_2, "avx2_vnni_2" },
        { dnnl_cpu_isa_avx512_core_fp16, "avx512_core_fp16" },
        { dnnl_cpu_isa_avx512_core_amx, "avx512_core_amx" },
        { dnnl_cpu_isa_avx512_core_amx_fp16, "avx512_core_amx_fp16" },
#else
        { dnnl_cpu_isa_avx512_core_amx, "avx512_core_amx" },
#endif
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (names[i].isa == isa) return names[i].name;
    }
    return NULL;
}

/* The name of the library that holds `address`, without its folder. A process may have two OpenMP
 * libraries. */
static const char *library_of(const void *address)
{
    Dl_info info;
    if (!dladdr(address, &info) || !info.dli_fname) return "?";
    const char *slash = strrchr(info.dli_fname, '/');
    return slash ? slash + 1 : info.dli_fname;
}

void fy__onednn_describe(fy_fact_fn say, void *user)
{
    char text[320];
    if (!fy__dnnl_open()) {
        (void)snprintf(text, sizeof text, "none: %s", fy__onednn_has_none());
        say(user, "onednn", text);
        return;
    }
    const dnnl_version_t *version = fy__dnnl.version();
    const dnnl_cpu_isa_t isa = fy__dnnl.get_effective_cpu_isa();
    int (*const of_openmp)(void) = omp_get_max_threads;
    const void *address;
    memcpy(&address, &of_openmp, sizeof address);
    (void)snprintf(text, sizeof text, "%d.%d.%d%s", version->major, version->minor, version->patch,
                   version->major == FERRY_DNNL_MAJOR
                       ? ""
                       : ", another major version than Ferry was compiled for");
    say(user, "onednn", text);
    (void)snprintf(text, sizeof text, "%s%s%s", threads_of(version->cpu_runtime),
                   version->cpu_runtime == DNNL_RUNTIME_OMP ? ", " : "",
                   version->cpu_runtime == DNNL_RUNTIME_OMP ? library_of(address) : "");
    say(user, "onednn_threads", text);
    if (isa_name(isa))
        (void)snprintf(text, sizeof text, "%s", isa_name(isa));
    else
        (void)snprintf(text, sizeof text, "0x%x, unknown to Ferry", (unsigned)isa);
    say(user, "onednn_isa", text);
}
