/* Functions shared by transfers between devices. Next: peer.c, all_reduce.c. */
#ifndef FERRY_TRANSFER_PEER_H_
#define FERRY_TRANSFER_PEER_H_

#include "runtime/tensor/tensor.h"

/* Resolves the faults of src before its bytes are sent to another device: faults are numbered by
 * device. May wait; adds that time to *blocked_ns. Fails with the fault that poisoned src. */
fy_status_t fy__peer_resolve(const char *what, const fy_tensor_t *src, uint64_t *blocked_ns);

#endif
