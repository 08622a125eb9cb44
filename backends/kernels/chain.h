/* Chains of elementwise ops in one pass; see chain.c and FY_LAUNCH_CHAIN in backend.h. */
#ifndef FERRY_BACKENDS_KERNELS_CHAIN_H_
#define FERRY_BACKENDS_KERNELS_CHAIN_H_

#include "backends/kernels/family.h"

/* Ops of a chain, one after the other, that run on registers. */
enum { FY__CHAIN_RUN = 24 };
typedef struct fy__chain_run {
    int ncodes;
    fy__chain_code_t code[3 * FY__CHAIN_RUN + 2]; /* `at` is not set */
    uint16_t operand[3 * FY__CHAIN_RUN + 2];      /* of each instruction; as in fy_chain_op_t */
} fy__chain_run_t;

/* The run that begins with op `first` of a chain with `noperands` operands in memory. Returns how
 * many ops it has; 0: none, the op runs alone. */
int fy__chain_encode(const fy_chain_op_t *ops, int nops, int first, int noperands,
                     fy__chain_run_t *run);
/* 1: it is a chain that fy__run_chain takes. */
int fy__chain_supports(const fy_launch_t *launch);
fy_status_t fy__run_chain(const fy_host_api_t *host, const fy__loops_t *loops,
                          const fy_launch_t *launch);

#endif
