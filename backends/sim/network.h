/* Networks between devices: profiles by name, or LATENCY:BANDWIDTH. A device with net= has its peer
 * copies on one; `ferry plan --ranks` predicts collectives on them (tools/network/).
 * Not here: times of copies (profile.h). Next: network.c. */
#ifndef FERRY_BACKENDS_SIM_NETWORK_H_
#define FERRY_BACKENDS_SIM_NETWORK_H_

#include <stdbool.h>
#include <stdint.h>

#define FY__SIM_NETWORK_FORM "eth25, ib400, nvlink, or LATENCY:BANDWIDTH such as 5us:50GB/s"

typedef struct fy__sim_network {
    char name[48];
    uint64_t latency_ns;  /* of one message between two ranks */
    uint64_t bytes_per_s; /* in each direction */
    bool is_shared;       /* by all ranks of a node: one adapter. Else each rank has its own */
} fy__sim_network_t;

/* A name, or LATENCY:BANDWIDTH: whole numbers with the units ns, us, ms and MB/s, GB/s (decimal).
 * A network of that form is not shared. Returns false if `text` is neither, or a number is 0 or
 * above 1 s or 1e15 B/s. */
bool fy__sim_network_parse(const char *text, fy__sim_network_t *out_network);

#endif
