/* The PTX machine of the fake driver (tests/support/fake_cuda/ptx): small kernels with one planted
 * fault each, which it must report, and correct ones, whose results it must compute. The kernels
 * of the plugin run on it in the step ptx of .ci/run. */
#include <stdio.h>
#include <string.h>

#include "tests/support/fake_cuda/ptx/ptx.h"
#include "tests/support/test.h"

#define BEGIN                                                                          \
    ".version 7.0\n.target sm_80\n.address_size 64\n"                                  \
    ".global .align 4 .b8 table[4] = {7, 1, 0, 0};\n"                                  \
    ".func (.param .b64 func_retval0) power(\n.param .b64 power_param_0,\n"            \
    ".param .b64 power_param_1\n)\n{\n.reg .b64 %rd<3>;\n.reg .pred %p<2>;\n"          \
    "ld.param.u64 %rd0, [power_param_0];\nld.param.u64 %rd1, [power_param_1];\n"       \
    "mov.u64 %rd2, 1;\n$L__BB1_0:\nsetp.eq.s64 %p0, %rd1, 0;\n@%p0 bra $L__BB1_1;\n"   \
    "mul.lo.s64 %rd2, %rd2, %rd0;\nadd.s64 %rd1, %rd1, -1;\nbra.uni $L__BB1_0;\n"      \
    "$L__BB1_1:\nst.param.b64 [func_retval0+0], %rd2;\nret;\n}\n"                      \
    ".visible .entry planted(\n.param .u64 planted_param_0\n)\n.maxntid 64, 1, 1\n{\n" \
    ".reg .pred %p<9>;\n.reg .b16 %rs<9>;\n.reg .b32 %r<20>;\n.reg .b64 %rd<20>;\n"    \
    ".reg .f32 %f<9>;\n.shared .align 16 .b8 tile[4096];\n"                            \
    "ld.param.u64 %rd1, [planted_param_0];\ncvta.to.global.u64 %rd1, %rd1;\n"          \
    "mov.u32 %r1, %tid.x;\nmov.u32 %r2, %ctaid.x;\nmov.u32 %r3, tile;\n"               \
    "setp.lt.u32 %p1, %r1, 16;\nsetp.lt.u32 %p2, %r1, 32;\n"                           \
    "mul.wide.u32 %rd2, %r1, 4;\nadd.s64 %rd2, %rd1, %rd2;\n"                          \
    "shl.b32 %r4, %r1, 2;\nadd.s32 %r4, %r3, %r4;\nxor.b32 %r5, %r4, 4;\n"
#define END "\nret;\n}\n"
#define MMA_OF(types, a)                                                          \
    "mma.sync.aligned.m16n8k16.row.col." types " {%f0, %f1, %f2, %f3}, {" a "}, " \
    "{%r6, %r6}, {%f0, %f1, %f2, %f3};\n"
#define MMA MMA_OF("f32.f16.f16.f32", "%r6, %r6, %r6, %r6")

static _Alignas(512) uint32_t memory[512];
static ptx_counts_t counts;
static char report[PTX_REPORT_NBYTES];

static void *translate(int device, uint64_t address, uint64_t nbytes)
{
    const uint64_t begin = (uint64_t)(uintptr_t)memory, end = begin + sizeof memory;
    assert_int_equal(device, 3);
    if (address < begin || address > end || nbytes > end - address) return NULL;
    return (void *)(uintptr_t)address;
}

/* `grid` blocks of 64 threads; the argument is the address of `memory`. */
static ptx_fault_t run(const char *body, unsigned grid)
{
    char text[8192];
    const uint64_t argument = (uint64_t)(uintptr_t)memory;
    snprintf(text, sizeof text, "%s%s%s", BEGIN, body, END);
    ptx_kernel_t *kernel = ptx_kernel_create("planted.ptx", text, "planted", report);
    if (kernel == NULL) print_error("%s\n", report);
    assert_non_null(kernel);
    memset(memory, 0, sizeof memory);
    counts = (ptx_counts_t){ 0 };
    const ptx_launch_t launch = { .kernel = kernel,
                                  .grid = grid,
                                  .block_x = 64,
                                  .block_y = 1,
                                  .arguments = &argument,
                                  .arguments_nbytes = sizeof argument,
                                  .device = 3,
                                  .translate = translate,
                                  .counts = &counts };
    const ptx_fault_t fault = ptx_run(&launch, report);
    ptx_kernel_destroy(kernel);
    return fault;
}

TS_TEST(planted_faults_are_reported)
{
    static const struct {
        ptx_fault_t fault;
        const char *body, *report;
    } cases[] = {
        { PTX_MISALIGNED, "ld.global.v2.u32 {%r6, %r7}, [%rd1+4];",
          "planted.ptx:48 (source unknown:0), block 0, thread 0: uses 8 bytes at" },
        { PTX_MISALIGNED, "st.shared.v4.u32 [%r4], {%r1, %r1, %r1, %r1};", "thread 1: uses 16" },
        { PTX_SHARED_RACE, "st.shared.u32 [%r4], %r1;\nld.shared.u32 %r6, [%r5];",
          "thread 0: reads byte 4 of shared memory, which thread 1 wrote since" },
        { PTX_SHARED_RACE, "st.shared.u32 [%r3], %r1;", "which thread 0 wrote" },
        { PTX_SHARED_RACE,
          "st.shared.u32 [%r4], %r1;\nbar.sync 0;\nld.shared.u32 %r6, [%r5];\n"
          "st.shared.u32 [%r4], %r6;",
          "which thread 1 read since" },
        { PTX_SHARED_RACE,
          "st.shared.u32 [%r4], %r1;\nbar.sync 0;\nld.shared.u32 %r6, [%r3];\n"
          "st.shared.u32 [%r4], %r6;",
          "which several threads read since" },
        { PTX_GLOBAL_RACE, "st.global.u32 [%rd2], %r1;", "block 1, thread 0: writes address" },
        { PTX_GLOBAL_RACE,
          "setp.eq.s32 %p3, %r2, 1;\n@%p3 st.global.u8 [%rd2], %r1;\n"
          "@!%p3 ld.global.u32 %r6, [%rd2];",
          "which block 0 read" },
        { PTX_GLOBAL_RACE,
          "setp.eq.s32 %p3, %r2, 0;\n@%p3 st.global.u8 [%rd2], %r1;\n"
          "@!%p3 ld.global.u32 %r6, [%rd2];",
          "reads address" },
        { PTX_GLOBAL_RACE,
          "setp.lt.u32 %p3, %r2, 2;\n@%p3 ld.global.u32 %r6, [%rd1];\n"
          "@!%p3 st.global.u32 [%rd1], %r1;",
          "which several blocks read" },
        { PTX_ENDLESS, "$L__BB0_1:\nbra.uni $L__BB0_1;", "too many instructions" },
        { PTX_UNWRITTEN, "ld.shared.u32 %r6, [%r4];", "reads byte 0 of shared memory" },
        { PTX_UNWRITTEN,
          "setp.eq.s32 %p3, %r2, 0;\n@%p3 st.shared.u32 [%r4], %r1;\nld.shared.u32 %r6, [%r4];",
          "block 1, thread 0: reads byte 0" },
        { PTX_UNWRITTEN,
          "shl.b32 %r7, %r1, 4;\nadd.s32 %r7, %r3, %r7;\nmov.u32 %r8, 0;\n"
          "cp.async.cg.shared.global [%r7], [%rd1], 16, %r8;\ncp.async.wait_all;\n"
          "ld.shared.u32 %r6, [%r7+1024];",
          "reads byte 1024 of shared memory" },
        { PTX_SHARED_RACE,
          "shl.b32 %r7, %r1, 4;\nadd.s32 %r7, %r3, %r7;\nmov.u32 %r8, 16;\n"
          "cp.async.cg.shared.global [%r7], [%rd1], 16, %r8;\ncp.async.wait_all;\n"
          "ld.shared.u32 %r6, [%r3+32];",
          "which thread 2 wrote since" },
        { PTX_SHARED_RACE,
          "shl.b32 %r7, %r1, 4;\nadd.s32 %r7, %r3, %r7;\nmov.u32 %r8, 16;\n"
          "cp.async.cg.shared.global [%r7], [%rd1], 16, %r8;\nbar.sync 0;\n"
          "ld.shared.u32 %r6, [%r3+32];\ncp.async.wait_all;",
          "which several threads read since" },
        { PTX_ABSENT_LANES,
          "@%p1 bra $L__BB0_1;\nshfl.sync.bfly.b32 %r6|%p3, %r1, 1, 31, -1;\n$L__BB0_1:",
          "thread 16: shuffles without lane 0" },
        { PTX_ABSENT_LANES,
          "@%p1 bra $L__BB0_1;\n"
          "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r6, %r7, %r8, %r9}, [%r3];\n$L__BB0_1:",
          "thread 16: runs without lane 0" },
        { PTX_ABSENT_LANES, "@!%p1 bra $L__BB0_1;\n" MMA "$L__BB0_1:", "without lane 16" },
        { PTX_ABSENT_LANES, "shfl.sync.bfly.b32 %r6|%p3, %r1, 1, 31, 1;",
          "thread 0: shuffles with a mask that has not both lanes 0 and 1" },
        { PTX_ABSENT_LANES, "shfl.sync.bfly.b32 %r6|%p3, %r1, 1, 31, -2;",
          "thread 0: shuffles with a mask" },
        { PTX_UNKNOWN, "shfl.sync.bfly.b32 %r6|%p3, %r1, 1, 7967, -1;", "with clamp 7967" },
        { PTX_BARRIER, "@%p1 bra $L__BB0_1;\nbar.sync 0;\n$L__BB0_1:",
          "thread 0: has ended before the barrier" },
        { PTX_BARRIER,
          "@%p2 bra $L__BB0_1;\nbar.sync 0;\nbra.uni $L__BB0_2;\n$L__BB0_1:\nbar.sync 0;\n"
          "$L__BB0_2:",
          "thread 32: waits at another barrier" },
        { PTX_OUTSIDE, "ld.global.u32 %r6, [%rd1+2048];", "outside any allocation" },
        { PTX_OUTSIDE, "st.global.u32 [%rd1+-4], %r1;", "writes 4 bytes" },
        { PTX_OUTSIDE, "mov.u64 %rd0, 0;\nld.global.u32 %r6, [%rd0+-4];", "at 0xfffffffffffffffc" },
        { PTX_OUTSIDE, "st.shared.u32 [%r3+4096], %r1;", "of 4096 bytes of shared memory" },
        { PTX_OUTSIDE,
          "cvt.u64.u32 %rd3, %r4;\ncvta.shared.u64 %rd3, %rd3;\nst.global.u32 [%rd3], %r1;",
          "outside any allocation" },
        { PTX_OUTSIDE,
          "cvt.u64.u32 %rd3, %r4;\ncvta.shared.u64 %rd3, %rd3;\nst.u32 [%rd3+4294967296], %r1;",
          "of shared memory" },
        { PTX_OUTSIDE, "mov.u64 %rd3, table;\nst.global.u32 [%rd3], %r1;", "the module's arrays" },
        { PTX_OUTSIDE, "st.param.u32 [planted_param_0], %r1;", "of arguments" },
        { PTX_OUTSIDE, "ld.param.u32 %r6, [planted_param_0+8];", "of 8 bytes of arguments" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const ptx_fault_t fault = run(cases[i].body, 3);
        if (fault != cases[i].fault || strstr(report, cases[i].report) == NULL)
            print_error("case %zu: fault %d, report %s\n", i, (int)fault, report);
        assert_int_equal(fault, cases[i].fault);
        assert_non_null(strstr(report, cases[i].report));
    }
}

/* Each stores a word a thread, of the first block. */
TS_TEST(correct_programs_compute)
{
    static const struct {
        const char *body;
        uint32_t want[2]; /* of threads 5 and 40 */
    } cases[] = {
        /* a barrier between */
        { "st.shared.u32 [%r4], %r1;\nbar.sync 0;\nld.shared.u32 %r6, [%r5];\nbar.sync 0;\n"
          "st.shared.u32 [%r4], %r6;",
          { 4, 41 } },
        /* lanes that part and meet before a shuffle */
        { "mov.u32 %r6, 100;\n@%p1 bra $L__BB0_1;\nadd.s32 %r6, %r6, %r1;\nbra.uni $L__BB0_2;\n"
          "$L__BB0_1:\nsub.s32 %r6, %r6, %r1;\n$L__BB0_2:\n"
          "shfl.sync.bfly.b32 %r6|%p3, %r6, 16, 31, -1;",
          { 121, 156 } },
        /* the loop of each lane has its own length */
        { "mov.u32 %r6, 0;\nmov.u32 %r7, %r1;\n$L__BB0_1:\nadd.s32 %r6, %r6, %r7;\n"
          "add.s32 %r7, %r7, -1;\nsetp.gt.s32 %p3, %r7, 0;\n@%p3 bra $L__BB0_1;",
          { 15, 820 } },
        /* calls from two places, of lanes that have parted */
        { "cvt.u64.u32 %rd3, %r1;\nmov.u64 %rd4, 2;\n@%p1 bra $L__BB0_1;\n"
          "{\n.param .b64 param0;\nst.param.b64 [param0+0], %rd3;\n.param .b64 param1;\n"
          "st.param.b64 [param1+0], %rd4;\n.param .b64 retval0;\n"
          "call.uni (retval0), \npower, \n(\nparam0, \nparam1\n);\n"
          "ld.param.b64 %rd5, [retval0+0];\n}\nbra.uni $L__BB0_2;\n$L__BB0_1:\n"
          "{\n.param .b64 param0;\nst.param.b64 [param0+0], %rd4;\n.param .b64 param1;\n"
          "st.param.b64 [param1+0], %rd3;\n.param .b64 retval0;\n"
          "call.uni (retval0), \npower, \n(\nparam0, \nparam1\n);\n"
          "ld.param.b64 %rd5, [retval0+0];\n}\n$L__BB0_2:\ncvt.u32.u64 %r6, %rd5;",
          { 32, 1600 } },
        /* two numbers to a pair of halves, the first one to the upper half */
        { "cvt.rn.f32.u32 %f0, %r1;\nmov.f32 %f1, 0f3F800000;\ncvt.rn.f16x2.f32 %r6, %f0, %f1;",
          { 0x45003c00, 0x51003c00 } },
        { "cvt.rn.f32.u32 %f0, %r1;\nmov.f32 %f1, 0f3F800000;\ncvt.rn.bf16x2.f32 %r6, %f0, %f1;",
          { 0x40a03f80, 0x42203f80 } },
        /* 16 bytes of memory, and 4 of them with zeros */
        { "st.global.u32 [%rd2], %r1;\nbar.sync 0;\nshl.b32 %r7, %r1, 4;\n"
          "add.s32 %r7, %r3, %r7;\nmov.u32 %r8, 16;\n@!%p2 mov.u32 %r8, 4;\n"
          "cp.async.cg.shared.global [%r7], [%rd1], 16, %r8;\ncp.async.wait_all;\n"
          "ld.shared.u32 %r6, [%r7+4];\nbar.sync 0;",
          { 1, 0 } },
        /* a carry into the upper word; a signed byte; the module's array */
        { "add.cc.u32 %r6, %r1, 0xfffffff0;\naddc.u32 %r6, %r1, 0;", { 5, 41 } },
        { "shl.b32 %r6, %r1, 2;\ncvt.u16.u32 %rs1, %r6;\nst.global.u8 [%rd2], %rs1;\n"
          "ld.global.s8 %r6, [%rd2];",
          { 20, (uint32_t)-96 } },
        { "mov.u64 %rd3, table;\ncvta.global.u64 %rd3, %rd3;\nld.u32 %r6, [%rd3];\n"
          "add.s32 %r6, %r6, %r1;",
          { 268, 303 } },
        /* a product of matrices: 16 x 1.0 */
        { "mov.u32 %r6, 0x3c003c00;\nmov.f32 %f0, 0f3F800000;\nmov.f32 %f1, %f0;\n"
          "mov.f32 %f2, %f0;\nmov.f32 %f3, %f0;\n" MMA "mov.b32 %r6, %f2;",
          { 0x41880000, 0x41880000 } },
        /* 1 + 2^-30 up and down, 1 - 2^-30 down and to zero */
        { "fma.rp.f32 %f1, 0f3F800000, 0f3F800000, 0f30800000;\nmov.b32 %r6, %f1;",
          { 0x3f800001, 0x3f800001 } },
        { "fma.rm.f32 %f1, 0f3F800000, 0f3F800000, 0f30800000;\nmov.b32 %r6, %f1;",
          { 0x3f800000, 0x3f800000 } },
        { "fma.rm.f32 %f1, 0f3F800000, 0f3F800000, 0fB0800000;\nmov.b32 %r6, %f1;",
          { 0x3f7fffff, 0x3f7fffff } },
        { "add.rz.f32 %f1, 0f3F800000, 0fB0800000;\nmov.b32 %r6, %f1;",
          { 0x3f7fffff, 0x3f7fffff } },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char body[2048];
        snprintf(body, sizeof body, "%s\nst.global.u32 [%%rd2], %%r6;", cases[i].body);
        report[0] = '\0';
        const ptx_fault_t fault = run(body, 1);
        if (fault != PTX_OK || memory[5] != cases[i].want[0] || memory[40] != cases[i].want[1])
            print_error("case %zu: %x %x, report %s\n", i, memory[5], memory[40], report);
        assert_int_equal(fault, PTX_OK);
        assert_int_equal(memory[5], cases[i].want[0]);
        assert_int_equal(memory[40], cases[i].want[1]);
    }
}

/* Blocks may set the same volatile flag, write bytes side by side, and read the same bytes. */
TS_TEST(harmless_blocks_pass)
{
    assert_int_equal(run("st.volatile.global.u32 [%rd1], 1;", 4), PTX_OK);
    assert_int_equal(run("ld.global.u32 %r6, [%rd2];", 4), PTX_OK);
    assert_int_equal(run("cvt.u64.u32 %rd3, %r2;\nadd.s64 %rd3, %rd3, %rd1;\n"
                         "setp.eq.s32 %p3, %r1, 0;\n@%p3 st.global.u8 [%rd3], %r1;",
                         4),
                     PTX_OK);
}

TS_TEST(accesses_are_counted)
{
    assert_int_equal(run("ld.global.u32 %r6, [%rd2];\nst.shared.u32 [%r4], %r6;", 1), PTX_OK);
    assert_int_equal(counts.launches, 1);
    assert_int_equal(counts.instructions, 2 * 15);
    assert_int_equal(counts.sectors_read, 8);
    assert_int_equal(counts.sectors_written, 0);
    assert_int_equal(counts.bank_conflicts, 0);
    /* words 32 bytes, and 64 of shared memory, apart */
    assert_int_equal(run("mul.wide.u32 %rd3, %r1, 32;\nadd.s64 %rd3, %rd1, %rd3;\n"
                         "st.global.u32 [%rd3], %r1;\nshl.b32 %r6, %r1, 6;\n"
                         "add.s32 %r6, %r6, %r3;\nst.shared.u32 [%r6], %r1;",
                         1),
                     PTX_OK);
    assert_int_equal(counts.sectors_written, 64);
    assert_int_equal(counts.bank_conflicts, 2 * 15);
}

TS_TEST(unknown_instructions_are_refused)
{
    static const char *const bodies[] = {
        "vote.sync.all.pred %p3, %p1, -1;",
        "add.sat.f32 %f0, %f0, %f0;",
        "bra $L__BB0_9;",
        "mov.u32 %r6, %clock;",
        "shfl.sync.idx.b32 %r6, %r1, 1, 31, -1;",
        "exit;",
        "setp.eq.f16 %p3, %rs1, %rs2;",
        "add.f16 %rs1, %rs1, %rs2;",
        "mul.bf16 %rs1, %rs1, %rs2;",
        "neg.f16 %rs1, %rs2;",
        "abs.bf16 %rs1, %rs2;",
        "fma.rn.f16 %rs1, %rs1, %rs2, %rs3;",
        "mad.rn.f32 %f0, %f1, %f2, %f3;",
        "mul.s32 %r6, %r1, %r2;",
        "mul.lo.hi.s32 %r6, %r1, %r2;",
        "add.cc.u64 %rd3, %rd1, %rd2;",
        "addc.u64 %rd3, %rd1, %rd2;",
        "setp.equ.s32 %p3, %r1, %r2;",
        "setp.s32 %p3, %r1, %r2;",
        "cvt.rz.f16.f32 %rs1, %f0;",
        "cvt.rm.bf16.f32 %rs1, %f0;",
        "cvt.rn.f16.s32 %rs1, %r1;",
        "cvt.rz.s32.f32 %r6, %f0;",
        "cvt.u32 %r6, %r1;",
        "ex2.f32 %f0, %f1;",
        "cvta.u64 %rd3, %rd1;",
        "ld.global.v2.u32 %r6, [%rd1];",
        "ld.global.v2.u32 {%r6, %r7, %r8}, [%rd1];",
        "st.global.u32 [%rd1], {%r6, %r7};",
        "ld.global.v4.u64 {%rd3, %rd3, %rd3, %rd3}, [%rd1];",
        "ld.global.f16 %rs1, [%rd1];",
        "mov.b32 %r6, {%rs1, %rs2, %rs3};",
        "bar.sync 1;",
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r6, %r7}, [%r3];",
        MMA_OF("f16.f16.f16.f16", "%r6, %r6, %r6, %r6"),
        MMA_OF("f32.f16.bf16.f32", "%r6, %r6, %r6, %r6"),
        MMA_OF("f32.tf32.tf32.f32", "%r6, %r6, %r6, %r6"),
        MMA_OF("f32.f16.f16.f32", "%r6, %r6"),
        "@%p1 bar.sync 0;"
    };
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        char text[8192];
        snprintf(text, sizeof text, "%s%s%s", BEGIN, bodies[i], END);
        ptx_kernel_t *kernel = ptx_kernel_create("planted.ptx", text, "planted", report);
        if (kernel != NULL) fail_msg("%s is accepted", bodies[i]);
        assert_non_null(strstr(report, "planted of planted.ptx: "));
        assert_non_null(strstr(report, "add it to"));
    }
    assert_null(ptx_kernel_create("planted.ptx", BEGIN END, "absent", report));
    assert_non_null(strstr(report, "no such kernel"));
}
