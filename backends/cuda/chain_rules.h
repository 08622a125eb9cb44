/* Which chains (FY_LAUNCH_CHAIN) the kernel fy_chain_f32 takes. Plain C without CUDA, so that the
 * simulator has the same rules (sim:0?chains=cuda) and plans the memory of such a graph.
 * Next: pack_chain.c, which packs such a chain. */
#ifndef FERRY_BACKENDS_CUDA_CHAIN_RULES_H_
#define FERRY_BACKENDS_CUDA_CHAIN_RULES_H_

#include <ferry/backend.h>

/* FY_CHAIN_TAKEN, or the reason why not, as the slot `chain` returns it. */
int fy__cuda_chain_check(const fy_launch_t *launch);
/* Op `k` sets a value that an op after the next one reads: a register holds it until then. */
int fy__cuda_chain_is_kept(const fy_launch_t *launch, uint32_t k);

#endif
