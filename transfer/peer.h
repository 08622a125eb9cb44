/* What transfers between devices share. Next: peer.c, all_reduce.c. */
#ifndef FERRY_TRANSFER_PEER_H_
#define FERRY_TRANSFER_PEER_H_

#include "runtime/tensor/tensor.h"

/* What another device is to have of src must be known to be good: faults are numbered by device.
 * May wait; adds that time to *blocked_ns. Fails with what spoilt src's bytes. */
fy_status_t fy__peer_resolve(const char *what, const fy_tensor_t *src, uint64_t *blocked_ns);

#endif
