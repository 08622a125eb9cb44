/* Runs a launch: blocks one after the other, each warp of a block up to the next barrier. Lanes
 * of a warp at the same instruction are a group. The group with the lowest pc runs, so that lanes
 * which have parted meet where the compiler joins them. A group at an instruction of the whole warp
 * waits until no other group can run. */
#include <stdlib.h>
#include <string.h>

#include "tests/support/fake_cuda/ptx/machine.h"

/* Of the warps of one block: 2^31 steps of threads. */
enum { MOST_INSTRUCTIONS = 1 << 26 };

/* Adds lanes to the list, which is sorted: the last has the lowest pc. */
static void add_group(ptx_groups_t *groups, uint32_t pc, uint32_t lanes)
{
    uint32_t k = groups->n;
    while (k > 0 && groups->at[k - 1].pc < pc) k--;
    if (k > 0 && groups->at[k - 1].pc == pc) {
        groups->at[k - 1].lanes |= lanes;
        return;
    }
    memmove(&groups->at[k + 1], &groups->at[k], (groups->n - k) * sizeof *groups->at);
    groups->at[k] = (ptx_group_t){ pc, lanes };
    groups->n++;
}

/* A function returns to where each lane has called it from. */
static void return_lanes(ptx_machine_t *m, ptx_warp_t *warp, int32_t row, uint32_t lanes)
{
    if (row < 0) return; /* the kernel itself: these threads have ended */
    const uint64_t *to = ptx_row(m, warp, row);
    for (uint32_t l = 0; l < PTX_LANES; l++)
        if (lanes >> l & 1) add_group(&warp->runs, (uint32_t)to[l], 1u << l);
}

static void copy_argument(ptx_machine_t *m, const ptx_warp_t *warp, const ptx_instruction_t *i,
                          uint32_t mask)
{
    for (uint32_t l = 0; l < PTX_LANES; l++)
        if (mask >> l & 1) {
            unsigned char *local = m->local + (warp->first + l) * m->kernel->local_nbytes;
            memcpy(local + i->operands[0].row, local + i->operands[1].row, (size_t)i->target);
        }
}

static void call(ptx_machine_t *m, ptx_warp_t *warp, const ptx_instruction_t *i, ptx_group_t *group)
{
    uint64_t *back = ptx_row(m, warp, i->operands[0].row);
    for (uint32_t l = 0; l < PTX_LANES; l++)
        if (group->lanes >> l & 1) back[l] = group->pc + 1;
    group->pc = (uint32_t)i->target;
}

/* Runs one group until it parts, ends, waits, or reaches the pc of another one. */
static void run_group(ptx_machine_t *m, ptx_warp_t *warp, ptx_group_t group)
{
    const uint32_t stop = warp->runs.n > 0 ? warp->runs.at[warp->runs.n - 1].pc : UINT32_MAX;
    while (m->fault == PTX_OK) {
        const ptx_instruction_t *i = m->now = &m->kernel->code[group.pc];
        uint32_t mask = group.lanes;
        if (++m->counts.instructions - m->block_instructions > MOST_INSTRUCTIONS)
            ptx_fail(m, PTX_ENDLESS, warp->first, "runs too many instructions");
        if (i->predicate >= 0) {
            const uint32_t p = warp->predicates[i->predicate];
            mask &= (i->flags & PTX_NEGATED) != 0 ? ~p : p;
        }
        group.pc++;
        switch (i->code) {
        case PTX_BRA:
            if (mask == group.lanes) {
                group.pc = (uint32_t)i->target;
            } else if (mask != 0) {
                add_group(&warp->runs, group.pc, group.lanes & ~mask);
                add_group(&warp->runs, (uint32_t)i->target, mask);
                return;
            }
            break;
        case PTX_RET:
            if (mask != group.lanes) add_group(&warp->runs, group.pc, group.lanes & ~mask);
            return_lanes(m, warp, i->operands[0].row, mask);
            return;
        case PTX_CALL:
            group.pc--;
            call(m, warp, i, &group);
            break;
        case PTX_BAR: add_group(&warp->waits, group.pc, mask); return;
        case PTX_SHFL:
        case PTX_LDMATRIX:
        case PTX_MMA:
            if (mask != PTX_ALL_LANES) {
                m->counts.instructions--;
                add_group(&warp->meets, group.pc - 1, mask);
                return;
            }
            ptx_cooperate(m, warp, i, mask);
            break;
        case PTX_LD:
        case PTX_ST: ptx_load_or_store(m, warp, i, mask); break;
        case PTX_CP: ptx_copy_async(m, warp, i, mask); break;
        case PTX_COPY: copy_argument(m, warp, i, mask); break;
        default: ptx_compute(m, warp, i, mask);
        }
        if (group.pc >= stop) {
            add_group(&warp->runs, group.pc, group.lanes);
            return;
        }
    }
}

/* Until every lane has ended or waits at a barrier. */
static void run_warp(ptx_machine_t *m, ptx_warp_t *warp)
{
    while (m->fault == PTX_OK) {
        if (warp->runs.n > 0) {
            run_group(m, warp, warp->runs.at[--warp->runs.n]);
        } else if (warp->meets.n > 0) { /* with the lanes that have come */
            const ptx_group_t group = warp->meets.at[--warp->meets.n];
            m->now = &m->kernel->code[group.pc];
            m->counts.instructions++;
            ptx_cooperate(m, warp, m->now, group.lanes);
            add_group(&warp->runs, group.pc + 1, group.lanes);
        } else {
            return;
        }
    }
}

/* Lanes of a warp that the block has. */
static uint32_t lanes_of(const ptx_machine_t *m, const ptx_warp_t *warp)
{
    const uint32_t n = m->nthreads - warp->first;
    return n >= PTX_LANES ? PTX_ALL_LANES : (1u << n) - 1;
}

static void begin_block(ptx_machine_t *m)
{
    ptx_checks_begin_block();
    memset(m->shared, 0xA5, m->kernel->shared_nbytes);
    memset(m->local, 0xA5, m->kernel->local_nbytes * m->nthreads);
    m->block_instructions = m->counts.instructions;
    for (uint32_t k = 0; k < m->nwarps; k++) {
        ptx_warp_t *warp = &m->warps[k];
        warp->runs.n = warp->meets.n = warp->waits.n = 0;
        warp->carry = 0;
        memset(warp->rows, 0xA5, m->kernel->nrows * sizeof *warp->rows);
        add_group(&warp->runs, m->kernel->begin, lanes_of(m, warp));
        for (uint32_t l = 0; l < PTX_LANES; l++) {
            warp->rows[PTX_TID_X][l] = (warp->first + l) % m->launch->block_x;
            warp->rows[PTX_TID_Y][l] = (warp->first + l) / m->launch->block_x;
            warp->rows[PTX_CTAID_X][l] = m->block;
            warp->rows[PTX_NTID_X][l] = m->launch->block_x;
            warp->rows[PTX_NCTAID_X][l] = m->launch->grid;
        }
    }
}

/* All threads of the block wait at the same barrier: they continue. 0: all have ended. */
static int pass_barrier(ptx_machine_t *m)
{
    const ptx_group_t *first = NULL;
    for (uint32_t k = 0; k < m->nwarps && first == NULL; k++)
        if (m->warps[k].waits.n > 0) first = &m->warps[k].waits.at[0];
    if (first == NULL) return 0;
    const uint32_t pc = first->pc;
    m->now = &m->kernel->code[pc - 1];
    for (uint32_t k = 0; k < m->nwarps; k++) {
        ptx_warp_t *warp = &m->warps[k];
        uint32_t here = 0, elsewhere = 0;
        for (uint32_t g = 0; g < warp->waits.n; g++)
            *(warp->waits.at[g].pc == pc ? &here : &elsewhere) |= warp->waits.at[g].lanes;
        const uint32_t absent = lanes_of(m, warp) & ~here;
        if (absent != 0) {
            const uint32_t lane = (uint32_t)__builtin_ctz(absent);
            ptx_fail(m, PTX_BARRIER, warp->first + lane,
                     elsewhere >> lane & 1 ? "waits at another barrier than the one below"
                                           : "has ended before the barrier below");
            return 0;
        }
        warp->waits.n = 0;
        add_group(&warp->runs, pc, here);
    }
    ptx_checks_barrier();
    return 1;
}

static void run_block(ptx_machine_t *m)
{
    begin_block(m);
    do {
        for (uint32_t k = 0; k < m->nwarps; k++) run_warp(m, &m->warps[k]);
    } while (m->fault == PTX_OK && pass_barrier(m));
}

/* Registers of all warps and local memory have any contents at first. */
static int begin_launch(ptx_machine_t *m)
{
    const ptx_kernel_t *kernel = m->kernel;
    m->nthreads = m->launch->block_x * m->launch->block_y;
    m->nwarps = (m->nthreads + PTX_LANES - 1) / PTX_LANES;
    m->warps = calloc(m->nwarps, sizeof *m->warps);
    m->shared = malloc(kernel->shared_nbytes + 1);
    m->local = malloc(kernel->local_nbytes * m->nthreads + 1);
    if (m->warps == NULL || m->shared == NULL || m->local == NULL) return 0;
    for (uint32_t k = 0; k < m->nwarps; k++) {
        ptx_warp_t *warp = &m->warps[k];
        warp->first = k * PTX_LANES;
        warp->rows = malloc(kernel->nrows * sizeof *warp->rows);
        warp->predicates = calloc(kernel->npredicates + 1, sizeof *warp->predicates);
        if (warp->rows == NULL || warp->predicates == NULL) return 0;
    }
    ptx_memory_begin();
    return ptx_checks_begin(m);
}

static void end_launch(ptx_machine_t *m)
{
    for (uint32_t k = 0; m->warps != NULL && k < m->nwarps; k++) {
        free(m->warps[k].rows);
        free(m->warps[k].predicates);
    }
    free(m->warps);
    free(m->shared);
    free(m->local);
}

ptx_fault_t ptx_run(const ptx_launch_t *launch, char report[PTX_REPORT_NBYTES])
{
    ptx_machine_t m = {
        .launch = launch, .kernel = launch->kernel, .now = launch->kernel->code, .report = report
    };
    if (!begin_launch(&m)) ptx_fail(&m, PTX_OUTSIDE, 0, "the host has no memory for the launch");
    if (launch->arguments_nbytes != launch->kernel->arguments_nbytes)
        ptx_fail(&m, PTX_ARGUMENTS, 0, "takes %llu bytes of arguments, and the launch has %zu",
                 (unsigned long long)launch->kernel->arguments_nbytes, launch->arguments_nbytes);
    for (; m.block < launch->grid && m.fault == PTX_OK; m.block++) run_block(&m);
    end_launch(&m);
    if (launch->counts != NULL) {
        launch->counts->launches++;
        launch->counts->instructions += m.counts.instructions;
        launch->counts->sectors_read += m.counts.sectors_read;
        launch->counts->sectors_written += m.counts.sectors_written;
        launch->counts->bank_conflicts += m.counts.bank_conflicts;
    }
    return m.fault;
}
