/* Runs a kernel's source on the host: one block after the other, the threads of a block as
 * coroutines that switch at barriers only. A barrier that some threads of the block (or warp) never
 * reach is detected and reported. Races of a card are not detected.
 * Kernels without barriers run as plain loops. See simt.h for the environment of a kernel,
 * fake_launch.c for the caller. */
#include "tests/support/fake_cuda/simt.h"

#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "tests/support/fake_cuda/fake.h"

/* Stacks are no power of two apart: their tops would all compete for the same lines of a cache. */
enum { MOST = SIMT_MOST, WARP = SIMT_WARP, STACK = (128 << 10) + 320 };
enum { RUNS, AT_WARP, AT_BLOCK, DONE };

simt_dim_t simt_thread, simt_block, simt_block_dim, simt_grid_dim;

/* clang-format off */
#define X(module, name) void name(const fy__cuda_args_t args);
FY__CUDA_ARGS_KERNEL_LIST(X)
#undef X
#define X(module, name) void name(const fy__cuda_flat_t flat);
FY__CUDA_FLAT_KERNEL_LIST(X)
#undef X
#define X(module, name) void name(const fy__cuda_chain_t chain);
FY__CUDA_CHAIN_KERNEL_LIST(X)
#undef X
/* clang-format on */

static void (*entry)(const fy__cuda_args_t args);
static void (*flat_entry)(const fy__cuda_flat_t flat);
static const fy__cuda_args_t *arguments;
static const fy__cuda_flat_t *flat_arguments;
static const fy__cuda_chain_t *chain_arguments;

static void call_entry(void)
{
    if (chain_arguments != NULL)
        fy_chain_f32(*chain_arguments);
    else if (flat_arguments != NULL)
        flat_entry(*flat_arguments);
    else
        entry(*arguments);
}
/* First entry of a thread; from then on it switches by the compiler's jumps, which save three words
 * and make no system call. */
typedef void *jump_t[5];
static ucontext_t fresh[MOST];
static jump_t scheduler, threads[MOST];
static int states[MOST], begun[MOST], misaligned, plain, waited;
static char *stacks;
unsigned simt_now;
int simt_sets[MOST];
char simt_slots[2][MOST][32];

static __attribute__((noinline, noreturn)) void jump(jump_t to) { __builtin_longjmp(to, 1); }

static __attribute__((noinline)) void arrive(int state)
{
    if (plain) {
        waited = 1;
        jump(scheduler);
    }
    states[simt_now] = state;
    if (__builtin_setjmp(threads[simt_now]) == 0) jump(scheduler);
}
void simt_sync_block(void) { arrive(AT_BLOCK); }
void simt_sync_warp(void) { arrive(AT_WARP); }

void simt_misaligned(void)
{
    misaligned = 1;
    states[simt_now] = DONE;
    jump(scheduler);
}

static void thread_main(void)
{
    call_entry();
    states[simt_now] = DONE;
    jump(scheduler);
}

static __attribute__((noinline)) void resume(int i)
{
    if (__builtin_setjmp(scheduler) != 0) return;
    if (begun[i]) jump(threads[i]);
    begun[i] = 1;
    setcontext(&fresh[i]);
}

static void place(int i)
{
    simt_now = (unsigned)i;
    simt_thread = (simt_dim_t){ (unsigned)i % simt_block_dim.x, (unsigned)i / simt_block_dim.x, 0 };
}

/* Continues those of threads first .. last-1 that all wait in `state`; ended threads do not count.
 * Returns 1 if any could continue. */
static int release(int first, int last, int state)
{
    int waiting = 0;
    for (int i = first; i < last; i++) {
        if (states[i] != state && states[i] != DONE) return 0;
        waiting += states[i] == state;
    }
    /* a shuffle with a thread that has ended */
    if (state == AT_WARP && waiting > 0 && waiting != last - first) return 0;
    for (int i = first; i < last; i++)
        if (states[i] == state) states[i] = RUNS;
    return waiting > 0;
}

static int run_block(int n)
{
    for (int i = 0; i < n; i++) {
        if (fresh[i].uc_stack.ss_sp == NULL) {
            getcontext(&fresh[i]);
            fresh[i].uc_stack.ss_sp = stacks + (size_t)i * STACK;
            fresh[i].uc_stack.ss_size = STACK;
            makecontext(&fresh[i], thread_main, 0);
        }
        states[i] = RUNS;
        begun[i] = 0;
        simt_sets[i] = 0;
    }
    for (;;) {
        int done = 0, freed = 0;
        for (int i = 0; i < n; i++) {
            if (states[i] == RUNS) {
                place(i);
                resume(i);
            }
            done += states[i] == DONE;
        }
        if (done == n) return 1;
        for (int warp = 0; warp < n; warp += WARP)
            freed |= release(warp, warp + WARP < n ? warp + WARP : n, AT_WARP);
        freed |= release(0, n, AT_BLOCK);
        if (!freed) return 0; /* a barrier that some threads do not reach */
    }
}

/* Threads that never wait for each other. Returns 0 if one does. */
static __attribute__((noinline)) int run_plainly(int n)
{
    plain = 1;
    waited = 0;
    if (__builtin_setjmp(scheduler) == 0) /* else a thread has ended early */
        for (int i = 0; i < n; i++) {
            place(i);
            call_entry();
        }
    plain = 0;
    return !waited;
}

/* Sets `entry` or `flat_entry`. 0: there is no such kernel. */
static int find_entry(const char *kernel, int is_flat)
{
    static const struct {
        const char *name;
        void (*entry)(const fy__cuda_args_t args);
    } kernels[] = {
#define X(module, name) { #name, name },
        FY__CUDA_ARGS_KERNEL_LIST(X)
#undef X
    };
    static const struct {
        const char *name;
        void (*entry)(const fy__cuda_flat_t flat);
    } flat_kernels[] = {
#define X(module, name) { #name, name },
        FY__CUDA_FLAT_KERNEL_LIST(X)
#undef X
    };
    entry = NULL;
    flat_entry = NULL;
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (strcmp(kernels[i].name, kernel) == 0) entry = kernels[i].entry;
    for (size_t i = 0; i < sizeof flat_kernels / sizeof *flat_kernels; i++)
        if (strcmp(flat_kernels[i].name, kernel) == 0) flat_entry = flat_kernels[i].entry;
    return is_flat ? flat_entry != NULL : entry != NULL;
}

/* 1: the block adds together, even if one thread has a row; or its first thread works for all; or
 * it shares a tile. */
static int joins(const char *kernel)
{
    static const char *const names[] = {
        "fy_transpose",      "fy_class_loss_",  "fy_step_f", /* fy_step_flat_, too */
        "fy_step_parts_",    "fy_batch_norm_f", "fy_batch_norm_parts_",
        "fy_row_norm_parts_"
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strncmp(kernel, names[i], strlen(names[i])) == 0) return 1;
    return 0;
}

/* 1, or 0 or -1 as simt_run. */
static int run_grid(unsigned grid, unsigned block_x, unsigned block_y, int has_barriers)
{
    const int n = (int)(block_x * block_y);
    if (stacks == NULL)
        stacks = mmap(NULL, (size_t)MOST * STACK, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (n > MOST || stacks == MAP_FAILED) return 0;
    misaligned = 0;
    simt_block_dim = (simt_dim_t){ block_x, block_y, 1 };
    simt_grid_dim = (simt_dim_t){ grid, 1, 1 };
    for (unsigned block = 0; block < grid; block++) {
        simt_block = (simt_dim_t){ block, 0, 0 };
        const int arrived = has_barriers ? run_block(n) : run_plainly(n);
        if (misaligned) return -1;
        if (!arrived) return 0;
    }
    return 1;
}

int simt_run_chain(const fy__cuda_chain_t *chain, unsigned grid, unsigned block_x)
{
    chain_arguments = chain;
    return run_grid(grid, block_x, 1, 0);
}

int simt_run(const char *kernel, const fy__cuda_args_t *args, const fy__cuda_flat_t *flat,
             unsigned grid, unsigned block_x, unsigned block_y)
{
    if (!find_entry(kernel, flat != NULL)) return 0;
    arguments = args;
    flat_arguments = flat;
    chain_arguments = NULL;
    return run_grid(grid, block_x, block_y, args->lanes > 1 || block_y > 1 || joins(kernel));
}
