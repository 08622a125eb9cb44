/* The table of profiles, each figure with its source, and the arithmetic that turns work into
 * nanoseconds.
 * Figures that no vendor publishes (latencies, pageable bandwidth, kernel start) say so;
 * docs/simulator.md explains the choice.
 * tests/unit/sim/test_profile.c repeats every number: change both, on purpose. */
#include "backends/sim/profile.h"

#include <string.h>

#define MIB            (1ull << 20)
#define TERA(tenths)   ((tenths)*100000000000ull) /* in tenths, so that 19.5 stays an integer */
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

/* wake_ns is chosen so that reading 4 bytes (submit + set-up + wait) takes the measured time: 9-32
 * us, less on newer ones.
 * memory_nbytes is the total of nvidia-smi. launch_submit_ns: 1.0-1.7 us of host time, less on
 * newer ones.
 * Tensor-core rates are dense (datasheets print twice that "with sparsity"). f32 is the plain f32
 * rate, not TF32. */
static const fy__sim_profile_t profiles[] = {
    {
        /* One of the board's two GK210. Tesla K80 board specification BD-07317-001: 24 GB, 480
         * GB/s, 8.73 TFLOPS f32 and 2.91 f64 with boost, for two. No 16-bit arithmetic: computed in
         * f32. Peers over PCIe 3. */
        .name = "k80",
        .memory_nbytes = 11441 * MIB,
        .f32_flops_per_s = 4365 * GIGA(1),
        .f64_flops_per_s = 1455 * GIGA(1),
        .f16_flops_per_s = 4365 * GIGA(1),
        .bf16_flops_per_s = 4365 * GIGA(1),
        .memory_bytes_per_s = GIGA(240),
        .peer_bytes_per_s = GIGA(12),
        .launch_submit_ns = 1700,
        .wake_ns = 23000,
        PCIE3,
        KERNEL,
    },
    {
        /* V100 datasheet (January 2020), SXM2 16 GB: 15.7 TFLOPS f32, 7.8 f64, 125 tensor f16, 900
         * GB/s, NVLink 300 GB/s both ways together. No bf16: computed in f32. */
        .name = "v100",
        .memory_nbytes = 16160 * MIB,
        .f32_flops_per_s = TERA(157),
        .f64_flops_per_s = TERA(78),
        .f16_flops_per_s = TERA(1250),
        .bf16_flops_per_s = TERA(157),
        .memory_bytes_per_s = GIGA(900),
        .peer_bytes_per_s = GIGA(150),
        .launch_submit_ns = 1500,
        .wake_ns = 11000,
        PCIE3,
        KERNEL,
    },
    {
        /* A100 80 GB datasheet, SXM4: 19.5 TFLOPS f32, 19.5 f64 tensor, 312 f16 and bf16 tensor,
         * 2,039 GB/s, NVLink 600 GB/s. */
        .name = "a100",
        .memory_nbytes = 81920 * MIB,
        .f32_flops_per_s = TERA(195),
        .f64_flops_per_s = TERA(195),
        .f16_flops_per_s = TERA(3120),
        .bf16_flops_per_s = TERA(3120),
        .memory_bytes_per_s = GIGA(2039),
        .peer_bytes_per_s = GIGA(300),
        .launch_submit_ns = 1300,
        .wake_ns = 7000,
        PCIE4,
        KERNEL,
    },
    {
        /* H100 datasheet, SXM: 67 TFLOPS f32, 67 f64 tensor, 1,979 f16 and bf16 tensor with
         * sparsity, 3.35 TB/s, NVLink 900 GB/s. */
        .name = "h100",
        .memory_nbytes = 81559 * MIB,
        .f32_flops_per_s = TERA(670),
        .f64_flops_per_s = TERA(670),
        .f16_flops_per_s = TERA(9895),
        .bf16_flops_per_s = TERA(9895),
        .memory_bytes_per_s = GIGA(3350),
        .peer_bytes_per_s = GIGA(450),
        .launch_submit_ns = 1000,
        .wake_ns = 3500,
        PCIE5,
        KERNEL,
    },
    {
        /* H200 datasheet, SXM: rates as H100, 141 GB, 4.8 TB/s, NVLink 900 GB/s. */
        .name = "h200",
        .memory_nbytes = 143771 * MIB,
        .f32_flops_per_s = TERA(670),
        .f64_flops_per_s = TERA(670),
        .f16_flops_per_s = TERA(9895),
        .bf16_flops_per_s = TERA(9895),
        .memory_bytes_per_s = GIGA(4800),
        .peer_bytes_per_s = GIGA(450),
        .launch_submit_ns = 1000,
        .wake_ns = 3500,
        PCIE5,
        KERNEL,
    },
    {
        /* Ada GPU architecture whitepaper, appendix A: 82.6 TFLOPS f32, 165.2 f16 and bf16 tensor
         * with f32 accumulate, f64 at 1/64 of f32, 1,008 GB/s, 24 GB. No NVLink: peers over PCIe
         * 4. */
        .name = "rtx4090",
        .memory_nbytes = 24564 * MIB,
        .f32_flops_per_s = TERA(826),
        .f64_flops_per_s = 1290 * GIGA(1),
        .f16_flops_per_s = TERA(1652),
        .bf16_flops_per_s = TERA(1652),
        .memory_bytes_per_s = GIGA(1008),
        .peer_bytes_per_s = GIGA(25),
        .launch_submit_ns = 1200,
        .wake_ns = 7000,
        PCIE4,
        KERNEL,
    },
    {
        /* T4 datasheet: 8.1 TFLOPS f32, 65 f16 tensor, 16 GB; memory 5001 MHz x 256 bit = 320 GB/s
         * (product brief PB-09256-001); f64 at 1/32 of f32 (Turing whitepaper). No bf16: computed
         * in f32. Peers over PCIe 3. */
        .name = "t4",
        .memory_nbytes = 15360 * MIB,
        .f32_flops_per_s = TERA(81),
        .f64_flops_per_s = 253 * GIGA(1),
        .f16_flops_per_s = TERA(650),
        .bf16_flops_per_s = TERA(81),
        .memory_bytes_per_s = GIGA(320),
        .peer_bytes_per_s = GIGA(12),
        .launch_submit_ns = 1700,
        .wake_ns = 11000,
        PCIE3,
        KERNEL,
    },
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
