/* The table of profiles, each figure with its source, and the arithmetic that turns work into
 * nanoseconds.
 * Figures that no vendor publishes (latencies, pageable bandwidth, kernel start) say so;
 * docs/simulator.md explains the choice.
 * tests/unit/sim/test_profile.c repeats every number: change both, on purpose. */
#include "backends/sim/profile.h"

#include <string.h>

#define MIB            (1ull << 20)
#define GIGA(n)        ((n)*1000000000ull)
#define NS_PER_S       1000000000ull
#define PRODUCT_FITS_N (UINT64_MAX / NS_PER_S)

/* The link, by PCIe generation: pinned and pageable bandwidth as commonly measured (12, 25, 50-55
 * GB/s pinned; pageable 8-12), a copy's submission (5-7 us), and its set-up on the engine: the time
 * of 24 KiB on that link, below which copies cost the same. */
#define PCIE3                                                                                \
    .pinned_bytes_per_s = GIGA(12), .pageable_bytes_per_s = GIGA(8), .copy_submit_ns = 7000, \
    .copy_setup_ns = 2000
#define PCIE4                                                                                 \
    .pinned_bytes_per_s = GIGA(25), .pageable_bytes_per_s = GIGA(10), .copy_submit_ns = 6000, \
    .copy_setup_ns = 1000
#define PCIE5                                                                                 \
    .pinned_bytes_per_s = GIGA(52), .pageable_bytes_per_s = GIGA(12), .copy_submit_ns = 5000, \
    .copy_setup_ns = 500

/* Not published: an empty kernel behind another takes about 2 us on all of these; an event query
 * about 0.2 us. */
#define KERNEL .kernel_ns = 2000, .poll_ns = 200

/* Memory in MiB; f32, f64, f16 and bf16 in GFLOP/s; memory and peers in GB/s; launch_submit_ns and
 * wake_ns; the link. */
#define PROFILE(name_, mib, f32, f64, f16, bf16, memory, peer, submit, wake, link)                 \
    {                                                                                              \
        .name = name_, .memory_nbytes = (mib)*MIB, .f32_flops_per_s = GIGA(f32),                   \
        .f64_flops_per_s = GIGA(f64), .f16_flops_per_s = GIGA(f16),                                \
        .bf16_flops_per_s = GIGA(bf16), .memory_bytes_per_s = GIGA(memory),                        \
        .peer_bytes_per_s = GIGA(peer), .launch_submit_ns = submit, .wake_ns = wake, link, KERNEL, \
    }
/* wake_ns is chosen so that reading 4 bytes (submit + set-up + wait) takes the measured time: 9-32
 * us, less on newer ones.
 * memory_nbytes is the total of nvidia-smi. launch_submit_ns: 1.0-1.7 us of host time, less on
 * newer ones.
 * Tensor-core rates are dense (datasheets print twice that "with sparsity"). f32 is the plain f32
 * rate, not TF32. */
static const fy__sim_profile_t profiles[] = {
    /* One of the board's two GK210. Tesla K80 board specification BD-07317-001: 24 GB, 480
     * GB/s, 8.73 TFLOPS f32 and 2.91 f64 with boost, for two. No 16-bit arithmetic: computed in
     * f32. Peers over PCIe 3. */
    PROFILE("k80", 11441, 4365, 1455, 4365, 4365, 240, 12, 1700, 23000, PCIE3),
    /* V100 datasheet (January 2020), SXM2 16 GB: 15.7 TFLOPS f32, 7.8 f64, 125 tensor f16, 900
     * GB/s, NVLink 300 GB/s both ways together. No bf16: computed in f32. */
    PROFILE("v100", 16160, 15700, 7800, 125000, 15700, 900, 150, 1500, 11000, PCIE3),
    /* A100 80 GB datasheet, SXM4: 19.5 TFLOPS f32, 19.5 f64 tensor, 312 f16 and bf16 tensor,
     * 2,039 GB/s, NVLink 600 GB/s. */
    PROFILE("a100", 81920, 19500, 19500, 312000, 312000, 2039, 300, 1300, 7000, PCIE4),
    /* H100 datasheet, SXM: 67 TFLOPS f32, 67 f64 tensor, 1,979 f16 and bf16 tensor with
     * sparsity, 3.35 TB/s, NVLink 900 GB/s. */
    PROFILE("h100", 81559, 67000, 67000, 989500, 989500, 3350, 450, 1000, 3500, PCIE5),
    /* H200 datasheet, SXM: rates as H100, 141 GB, 4.8 TB/s, NVLink 900 GB/s. */
    PROFILE("h200", 143771, 67000, 67000, 989500, 989500, 4800, 450, 1000, 3500, PCIE5),
    /* Ada GPU architecture whitepaper, appendix A: 82.6 TFLOPS f32, 165.2 f16 and bf16 tensor with
     * f32 accumulate, f64 at 1/64 of f32, 1,008 GB/s, 24 GB. No NVLink: peers over PCIe 4. */
    PROFILE("rtx4090", 24564, 82600, 1290, 165200, 165200, 1008, 25, 1200, 7000, PCIE4),
    /* T4 datasheet: 8.1 TFLOPS f32, 65 f16 tensor, 16 GB; memory 5001 MHz x 256 bit = 320 GB/s
     * (product brief PB-09256-001); f64 at 1/32 of f32 (Turing whitepaper). No bf16: computed
     * in f32. Peers over PCIe 3. */
    PROFILE("t4", 15360, 8100, 253, 65000, 8100, 320, 12, 1700, 11000, PCIE3),
};

/* A small server: two cores with AVX-512 reach 300 GFLOP/s in f32 GEMM and stream about 10 GB/s; a
 * small op costs about 50 ns. */
const fy__sim_host_profile_t fy__sim_host_profile = {
    .flops_per_s = GIGA(300), .bytes_per_s = GIGA(10), .op_ns = 50, .copy_bytes_per_s = GIGA(60)
};

const fy__sim_profile_t *fy__sim_profile_at(size_t index)
{
    return index < sizeof(profiles) / sizeof(profiles[0]) ? &profiles[index] : NULL;
}

const fy__sim_profile_t *fy__sim_profile_find(const char *name)
{
    for (size_t i = 0; i < sizeof(profiles) / sizeof(profiles[0]); i++)
        if (strcmp(profiles[i].name, name) == 0) return &profiles[i];
    return NULL;
}

static uint64_t add(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }

static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* ceil(amount / per_s) in nanoseconds. Integers, so that every machine computes the same. */
static uint64_t time_of(uint64_t amount, uint64_t per_s)
{
    /* rates are far below 2^64 - 2^60 */
    if (amount <= PRODUCT_FITS_N) return (amount * NS_PER_S + per_s - 1) / per_s;
    __extension__ typedef unsigned __int128 wide_t;
    wide_t ns = ((wide_t)amount * NS_PER_S + per_s - 1) / per_s;
    return ns > UINT64_MAX ? UINT64_MAX : (uint64_t)ns;
}

static uint64_t flops_per_s(const fy__sim_profile_t *profile, fy_dtype_t dtype)
{
    switch (dtype) {
    case FY_DTYPE_F64: return profile->f64_flops_per_s;
    case FY_DTYPE_F16: return profile->f16_flops_per_s;
    case FY_DTYPE_BF16: return profile->bf16_flops_per_s;
    /* integers too: none of Ferry's ops multiplies integer matrices */
    default: return profile->f32_flops_per_s;
    }
}

uint64_t fy__sim_profile_launch_ns(const fy__sim_profile_t *profile, fy_dtype_t dtype,
                                   uint64_t flops, uint64_t nbytes)
{
    uint64_t arithmetic_ns = time_of(flops, flops_per_s(profile, dtype));
    return add(larger(arithmetic_ns, time_of(nbytes, profile->memory_bytes_per_s)),
               profile->kernel_ns);
}

uint64_t fy__sim_profile_memory_ns(const fy__sim_profile_t *profile, uint64_t nbytes)
{
    return add(time_of(nbytes, profile->memory_bytes_per_s), profile->kernel_ns);
}

uint64_t fy__sim_profile_link_ns(const fy__sim_profile_t *profile, int host_pinned, uint64_t nbytes)
{
    uint64_t per_s = host_pinned ? profile->pinned_bytes_per_s : profile->pageable_bytes_per_s;
    return add(time_of(nbytes, per_s), profile->copy_setup_ns);
}

uint64_t fy__sim_profile_peer_ns(const fy__sim_profile_t *from, const fy__sim_profile_t *to,
                                 uint64_t nbytes)
{
    uint64_t per_s = from->peer_bytes_per_s < to->peer_bytes_per_s ? from->peer_bytes_per_s
                                                                   : to->peer_bytes_per_s;
    return add(time_of(nbytes, per_s),
               larger(from->copy_setup_ns, to->copy_setup_ns) + larger(from->peer_ns, to->peer_ns));
}

uint64_t fy__sim_profile_host_ns(const fy__sim_host_profile_t *host, uint64_t flops,
                                 uint64_t nbytes)
{
    return add(larger(time_of(flops, host->flops_per_s), time_of(nbytes, host->bytes_per_s)),
               host->op_ns);
}

uint64_t fy__sim_profile_host_copy_ns(const fy__sim_host_profile_t *host, uint64_t nbytes)
{
    return time_of(nbytes, host->copy_bytes_per_s);
}
