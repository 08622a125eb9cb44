/* Profiles: the figures that a simulated accelerator's times are computed from, and that arithmetic
 * itself.
 * Not here: when something starts (clock.h), which bytes move (work.c).
 * Next: profile.c for the table and its sources, docs/simulator.md for what the figures mean. */
#ifndef FERRY_BACKENDS_SIM_PROFILE_H_
#define FERRY_BACKENDS_SIM_PROFILE_H_

#include <ferry/backend.h>

/* One accelerator. Rates are vendors' peaks, so computed times are lower bounds. */
typedef struct fy__sim_profile {
    const char *name;
    uint64_t memory_nbytes; /* what the driver reports as the device's total */
    uint64_t f32_flops_per_s, f64_flops_per_s, f16_flops_per_s, bf16_flops_per_s;
    uint64_t memory_bytes_per_s;
    uint64_t pinned_bytes_per_s, pageable_bytes_per_s; /* between host and device, each way */
    uint64_t peer_bytes_per_s;                         /* to another device, each way */
    /* Host time of one request. */
    uint64_t launch_submit_ns, copy_submit_ns, poll_ns;
    uint64_t wake_ns; /* from the end of an awaited request to the host running again */
    /* Device time of one request, whatever its size. */
    uint64_t kernel_ns, copy_setup_ns;
    uint64_t peer_ns; /* of a peer copy, in addition; 0 without a network (network.h) */
} fy__sim_profile_t;

/* The host's own arithmetic, for host ops between requests. */
typedef struct fy__sim_host_profile {
    uint64_t flops_per_s, bytes_per_s, op_ns;
    /* of payload, between memory and a staging buffer, by several threads */
    uint64_t copy_bytes_per_s;
} fy__sim_host_profile_t;

/* The built-in one; a file may bring another (profile_file.h). */
extern const fy__sim_host_profile_t fy__sim_host_profile;

/* NULL if there is none of that name. */
const fy__sim_profile_t *fy__sim_profile_find(const char *name);
/* NULL past the last one. */
const fy__sim_profile_t *fy__sim_profile_at(size_t index);

/* Durations, rounded up to whole nanoseconds; UINT64_MAX if they do not fit. */
uint64_t fy__sim_profile_launch_ns(const fy__sim_profile_t *profile, fy_dtype_t dtype,
                                   uint64_t flops, uint64_t nbytes);
/* `nbytes` written to (fill) or moved within (local copy: twice the bytes of the copy) the device's
 * memory. */
uint64_t fy__sim_profile_memory_ns(const fy__sim_profile_t *profile, uint64_t nbytes);
uint64_t fy__sim_profile_link_ns(const fy__sim_profile_t *profile, int host_pinned,
                                 uint64_t nbytes);
/* The slower of the two ends decides. */
uint64_t fy__sim_profile_peer_ns(const fy__sim_profile_t *from, const fy__sim_profile_t *to,
                                 uint64_t nbytes);
uint64_t fy__sim_profile_host_ns(const fy__sim_host_profile_t *host, uint64_t flops,
                                 uint64_t nbytes);
uint64_t fy__sim_profile_host_copy_ns(const fy__sim_host_profile_t *host, uint64_t nbytes);

#endif
