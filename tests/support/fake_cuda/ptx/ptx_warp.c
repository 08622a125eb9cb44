/* Instructions of the whole warp: shuffles, and those of tensor cores. Each lane's part of a
 * matrix: PTX ISA, "ldmatrix" and "Matrix Fragments for mma.m16n8k16". */
#include <string.h>

#include "opset/formulas/half.h"
#include "tests/support/fake_cuda/ptx/machine.h"

static uint32_t lane_of(uint32_t lanes) { return (uint32_t)__builtin_ctz(lanes); }

static void shuffle(ptx_machine_t *m, ptx_warp_t *warp, const ptx_instruction_t *i, uint32_t mask)
{
    uint64_t *d = ptx_row(m, warp, i->operands[0].row), values[PTX_LANES];
    const uint64_t *step = ptx_row(m, warp, i->operands[2].row),
                   *clamp = ptx_row(m, warp, i->operands[3].row),
                   *members = ptx_row(m, warp, i->operands[4].row);
    memcpy(values, ptx_row(m, warp, i->operands[1].row), sizeof values);
    for (uint32_t l = 0; l < PTX_LANES; l++) {
        if ((mask >> l & 1) == 0) continue;
        const uint32_t absent = (uint32_t)members[l] & ~mask, from = (l ^ (uint32_t)step[l]) % 32;
        if (absent != 0 || (mask >> from & 1) == 0) {
            ptx_fail(m, PTX_ABSENT_LANES, warp->first + l, "shuffles without lane %u",
                     absent != 0 ? lane_of(absent) : from);
            return;
        }
        if ((members[l] >> l & members[l] >> from & 1) == 0) {
            ptx_fail(m, PTX_ABSENT_LANES, warp->first + l,
                     "shuffles with a mask that has not both lanes %u and %u", l, from);
            return;
        }
        if ((uint32_t)clamp[l] != 31) {
            ptx_fail(m, PTX_UNKNOWN, warp->first + l, "shuffles with clamp %u, not 31",
                     (uint32_t)clamp[l]);
            return;
        }
        d[l] = values[from];
    }
    if (i->target >= 0) warp->predicates[i->target] |= mask;
}

static void load_matrices(ptx_machine_t *m, ptx_warp_t *warp, const ptx_instruction_t *i)
{
    const uint64_t *addresses = ptx_row(m, warp, i->operands[1].row);
    uint32_t found[PTX_VECTOR][PTX_LANES] = { { 0 } };
    if (m->launch->counts != NULL) /* a matrix in a pass: the rows of eight lanes */
        ptx_count_access(&m->counts, PTX_SHARED, addresses, i->offset, PTX_ALL_LANES, 16, 0);
    for (uint32_t l = 0; l < PTX_LANES; l++) {
        uint16_t halves[8];
        const void *bytes = ptx_reach(m, PTX_SHARED, addresses[l] + (uint64_t)i->offset,
                                      sizeof halves, warp->first + l, 0);
        if (bytes == NULL) return;
        memcpy(halves, bytes, sizeof halves);
        for (uint32_t k = 0; k < 8; k++) {
            const uint32_t row = (i->flags & PTX_TRANS) != 0 ? k : l % 8,
                           column = (i->flags & PTX_TRANS) != 0 ? l % 8 : k;
            found[l / 8][row * 4 + column / 2] |= (uint32_t)halves[k] << column % 2 * 16;
        }
    }
    for (uint32_t k = 0; k < PTX_VECTOR; k++) {
        uint64_t *d = ptx_row(m, warp, m->kernel->lists[(uint32_t)i->operands[0].row + k]);
        for (uint32_t l = 0; l < PTX_LANES; l++) d[l] = found[k][l];
    }
}

static const uint64_t *part(ptx_machine_t *m, ptx_warp_t *warp, const ptx_operand_t *list,
                            uint32_t k)
{
    return ptx_row(m, warp, m->kernel->lists[(uint32_t)list->row + k]);
}

static double half_of(const ptx_instruction_t *i, uint64_t pair, uint32_t second)
{
    const uint16_t half = (uint16_t)(pair >> second * 16);
    return (double)(i->from == PTX_BF16 ? fy__f32_from_bf16(half) : fy__f32_from_f16(half));
}

/* sums (16 x 8) = a (16 x 16) b (16 x 8) + sums. Each sum is rounded once: tensor cores round more
 * often, in an order that is not documented. */
static void multiply(ptx_machine_t *m, ptx_warp_t *warp, const ptx_instruction_t *i)
{
    double a[16][16], b[16][8];
    for (uint32_t l = 0; l < PTX_LANES; l++) {
        const uint32_t group = l / 4, pair = l % 4 * 2;
        for (uint32_t k = 0; k < 8; k++) {
            const uint32_t row = group + k / 2 % 2 * 8, column = pair + k % 2 + k / 4 * 8;
            a[row][column] = half_of(i, part(m, warp, &i->operands[1], k / 2)[l], k % 2);
        }
        for (uint32_t k = 0; k < 4; k++)
            b[pair + k % 2 + k / 2 * 8][group] =
                half_of(i, part(m, warp, &i->operands[2], k / 2)[l], k % 2);
    }
    for (uint32_t l = 0; l < PTX_LANES; l++) {
        double sums[4]; /* all are read before one is written: registers may be the same */
        for (uint32_t k = 0; k < 4; k++) {
            const uint32_t row = l / 4 + k / 2 * 8, column = l % 4 * 2 + k % 2;
            sums[k] = (double)fy__f32_of_bits((uint32_t)part(m, warp, &i->operands[3], k)[l]);
            for (uint32_t depth = 0; depth < 16; depth++)
                sums[k] += a[row][depth] * b[depth][column];
        }
        for (uint32_t k = 0; k < 4; k++)
            ptx_row(m, warp, m->kernel->lists[(uint32_t)i->operands[0].row + k])[l] =
                fy__bits_of_f32((float)sums[k]);
    }
}

void ptx_cooperate(ptx_machine_t *m, ptx_warp_t *warp, const ptx_instruction_t *i, uint32_t mask)
{
    if (i->code == PTX_SHFL) {
        shuffle(m, warp, i, mask);
    } else if (mask != PTX_ALL_LANES) {
        ptx_fail(m, PTX_ABSENT_LANES, warp->first + lane_of(mask), "runs without lane %u",
                 lane_of(~mask));
    } else if (i->code == PTX_LDMATRIX) {
        load_matrices(m, warp, i);
    } else {
        multiply(m, warp, i);
    }
}
