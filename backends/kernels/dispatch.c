/* From an op to the family that runs it: one table, one test of the dtype, one indirect call. Also
 * picks the loop table for this machine.
 * Not here: any loop, the number of threads (threads.c). The way of a tiny add: fy__kernels_launch
 * -> fy__run_binary -> add_f32. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "backends/kernels/chain.h"
#include "backends/kernels/family.h"
#include "backends/kernels/kernels.h"
#include "backends/kernels/last_product.h"
#include "backends/kernels/onednn.h"
#include "backends/kernels/team.h"
#include "opset/dtypes.h"

#define KERNEL(family)         .run = fy__run_##family
#define SCRATCH_KERNEL(family) KERNEL(family)
#include "opset/first_source.def"
#define ROW(number, ENUM, name, flags, set, attrs, shape, cost, back, host, cuda, faults, \
            operands, ...)                                                                \
    [FY_OP_##ENUM] = { OPEN host, .dtypes = (0 OPEN operands) ? (0 OPEN operands) : FY__SET_##set },
#define UNARY(number, ENUM, name, set, maths, ...) \
    [FY_OP_##ENUM] = { fy__run_unary, FY__SET_##set, FY__UNARY_##ENUM, FY__MATHS_##maths },
#define BINARY(number, ENUM, name, set, maths, ...) \
    [FY_OP_##ENUM] = { fy__run_binary, FY__SET_##set, FY__BINARY_##ENUM, FY__MATHS_##maths },
#define SLOPE(number, ENUM, name, at, maths, ...) BINARY(number, ENUM, name, FLOAT, maths, )
#define TEST(number, ENUM, name, set, ...) \
    [FY_OP_##ENUM] = { fy__run_test, FY__SET_##set, FY__TEST_##ENUM, FY__MATHS_cheap },
#define SCALED(number, ENUM, name, attrs, maths, ...) \
    [FY_OP_##ENUM] = { fy__run_scaled, FY__SET_FLOAT, FY__SCALED_##ENUM, FY__MATHS_##maths },
#define COMPARE(number, ENUM, ...) \
    [FY_OP_##ENUM] = { fy__run_compare, FY__SET_ANY, FY__COMPARE_##ENUM, FY__MATHS_cheap },
const fy__kernel_row_t fy__kernel_rows[FY_OP_BUILTIN_COUNT] = {
#include "opset/ops.def"
};

#define KERNEL(family)         NULL
#define SCRATCH_KERNEL(family) fy__##family##_workspace
#define ROW(number, ENUM, name, flags, set, attrs, shape, cost, back, host, ...) \
    [FY_OP_##ENUM] = OPEN host,
static const fy__workspace_fn workspaces[FY_OP_BUILTIN_COUNT] = {
#include "opset/ops.def"
};

static const char *const names[FY_OP_BUILTIN_COUNT] = {
#define X(name, text) [FY_OP_##name] = #text,
    FY_OP_LIST(X)
#undef X
};
static const char *const dtype_names[FY_DTYPE_COUNT] = {
#define X(name, text, nbytes, is_float) [FY_DTYPE_##name] = text,
    FY_DTYPE_LIST(X)
#undef X
};

/* ---- the loop table of this machine ---- */

static const fy__loops_t *_Atomic chosen_loops;

static __attribute__((noinline)) const fy__loops_t *choose_loops(void)
{
    static _Atomic int watches_fork;
    const fy__loops_t *loops = &fy__loops_base;
#if FY__LOOPS_X86
    if (__builtin_cpu_supports("x86-64-v4")) {
        loops = &fy__loops_avx512;
    } else if (__builtin_cpu_supports("x86-64-v3")) {
        loops = &fy__loops_avx2;
    }
#endif
    if (!atomic_exchange(&watches_fork, 1))
        (void)pthread_atfork(NULL, NULL, fy__threads_stay_serial);
    atomic_store_explicit(&chosen_loops, loops, memory_order_release);
    return loops;
}

static inline const fy__loops_t *get_loops(void)
{
    const fy__loops_t *loops = atomic_load_explicit(&chosen_loops, memory_order_acquire);
    return __builtin_expect(loops != NULL, 1) ? loops : choose_loops();
}

const fy__loops_t *fy__loops_get(void) { return get_loops(); }

/* ---- threads ---- */

int fy__team_limit;

void fy__for_each(int64_t n, int threads, fy__each_fn fn, const void *context)
{
    if (threads == 1 || n < 2) {
        for (int64_t i = 0; i < n; i++) fn(context, i);
        return;
    }
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < n; i++) fn(context, i);
}

/* ---- the last product. Names of oneDNN's implementations are freed with their primitives, so each
 * is copied once. One processor has about a dozen. ---- */

enum { MOST_PRODUCTS = 64, PRODUCT_SIZE = 64 };

const char *fy__product_last;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards products and nproducts */
static char products[MOST_PRODUCTS][PRODUCT_SIZE];
static int nproducts;

void fy__product_by_named(const char *name)
{
    const char *last = __atomic_load_n(&fy__product_last, __ATOMIC_ACQUIRE), *own = "oneDNN";
    if (last && strncmp(last, name, PRODUCT_SIZE - 1) == 0) return;
    pthread_mutex_lock(&lock);
    int i = 0;
    while (i < nproducts && strncmp(products[i], name, PRODUCT_SIZE - 1) != 0) i++;
    if (i == nproducts && nproducts < MOST_PRODUCTS)
        (void)snprintf(products[nproducts++], PRODUCT_SIZE, "%s", name);
    if (i < nproducts) own = products[i];
    pthread_mutex_unlock(&lock);
    fy__product_by(own);
}

/* ---- the calls of kernels.h ---- */

static inline int has_kernel(const fy_launch_t *launch)
{
    const fy_desc_t *main = launch->nsrc ? launch->src : launch->dst;
    return launch->op < FY_OP_BUILTIN_COUNT && (uint32_t)main->dtype < FY_DTYPE_COUNT &&
           (fy__kernel_rows[launch->op].dtypes >> main->dtype & 1u) != 0;
}

static inline int is_packed(const fy_launch_t *launch)
{
    return launch->op == FY_LAUNCH_SCATTER || launch->op == FY_LAUNCH_GATHER;
}

int fy__kernels_supports(const fy_launch_t *launch)
{
    return launch->kernel != NULL || has_kernel(launch) || is_packed(launch) ||
           fy__chain_supports(launch);
}

static __attribute__((noinline)) fy_status_t run_other(const fy_host_api_t *host,
                                                       const fy_launch_t *launch)
{
    if (is_packed(launch)) return fy__run_packed(launch);
    if (fy__chain_supports(launch)) return fy__run_chain(host, get_loops(), launch);
    const int32_t dtype = (launch->nsrc ? launch->src : launch->dst)->dtype;
    if (launch->op >= FY_OP_BUILTIN_COUNT) {
        return host->fail(FY_STATUS_UNSUPPORTED, __FILE__, __LINE__,
                          "op %u has no kernel on the host", (unsigned)launch->op);
    }
    return host->fail(FY_STATUS_UNSUPPORTED, __FILE__, __LINE__, "%s has no %s kernel on the host",
                      names[launch->op],
                      (uint32_t)dtype < FY_DTYPE_COUNT ? dtype_names[dtype] : "?");
}

fy_status_t fy__kernels_launch(const fy_host_api_t *host, const fy_launch_t *launch)
{
    if (__builtin_expect(launch->kernel != NULL, 0)) return launch->kernel(launch, NULL);
    if (__builtin_expect(!has_kernel(launch), 0)) return run_other(host, launch);
    return fy__kernel_rows[launch->op].run(host, get_loops(), launch);
}

uint64_t fy__kernels_workspace(const fy_launch_t *launch, uint64_t limit)
{
    if (!has_kernel(launch)) return 0;
    const fy__workspace_fn workspace = workspaces[launch->op];
    return workspace ? workspace(launch, limit) : 0;
}

void fy__kernels_describe(fy_fact_fn say, void *user)
{
    fy__onednn_describe(say, user);
    const char *last = __atomic_load_n(&fy__product_last, __ATOMIC_ACQUIRE);
    if (last) say(user, "last_product", last);
}
