/* The parts of the PTX machine, shared by its files: the decoded form of a kernel, warps, the state
 * of a launch. */
#ifndef FERRY_TESTS_FAKE_CUDA_PTX_MACHINE_H_
#define FERRY_TESTS_FAKE_CUDA_PTX_MACHINE_H_

#include "tests/support/fake_cuda/ptx/ptx.h"

enum { PTX_LANES = 32, PTX_OPERANDS = 5, PTX_VECTOR = 4 };
#define PTX_ALL_LANES 0xffffffffu

/* clang-format off */
enum ptx_code {
    PTX_MOV, PTX_ADD, PTX_SUB, PTX_MUL, PTX_MAD, PTX_FMA, PTX_DIV, PTX_REM, PTX_MIN, PTX_MAX,
    PTX_ABS, PTX_NEG, PTX_AND, PTX_OR, PTX_XOR, PTX_NOT, PTX_SHL, PTX_SHR, PTX_SELP, PTX_SETP,
    PTX_CVT, PTX_EX2, PTX_RCP, PTX_SQRT, PTX_COPYSIGN, PTX_PRMT, PTX_BFI, PTX_CLZ,
    PTX_CVTA, PTX_LD, PTX_ST, PTX_CP,
    PTX_SHFL, PTX_LDMATRIX, PTX_MMA, /* of the whole warp */
    PTX_BRA, PTX_BAR, PTX_RET, PTX_CALL, PTX_COPY /* an argument or result of a call */
};
enum ptx_type {
    PTX_NO_TYPE, PTX_U8, PTX_S8, PTX_B8, PTX_U16, PTX_S16, PTX_B16, PTX_U32, PTX_S32, PTX_B32,
    PTX_U64, PTX_S64, PTX_B64, PTX_F16, PTX_BF16, PTX_F32, PTX_F64, PTX_PRED
};
enum ptx_space { PTX_GENERIC, PTX_GLOBAL, PTX_SHARED, PTX_LOCAL, PTX_PARAM };
enum ptx_compare {
    PTX_EQ = 1, PTX_NE, PTX_LT, PTX_LE, PTX_GT, PTX_GE, PTX_EQU, PTX_NEU, PTX_LTU, PTX_LEU,
    PTX_GTU, PTX_GEU, PTX_NUM, PTX_NAN
};
enum ptx_rounding { PTX_RN, PTX_RZ, PTX_RM, PTX_RP };
enum ptx_flag {
    PTX_LO = 1, PTX_HI = 2, PTX_WIDE = 4, PTX_FTZ = 8, PTX_SAT = 16, PTX_APPROX = 32, PTX_CC = 64,
    PTX_TRANS = 128, PTX_TO = 256, PTX_VOLATILE = 512, PTX_INTEGRAL = 1024, PTX_FROM_CC = 2048,
    PTX_BFLY = 4096, PTX_NEGATED = 8192 /* the predicate */, PTX_ROUNDED = 16384,
    PTX_PAIR = 32768 /* of halves */, PTX_WAIT = 65536
};
/* clang-format on */

/* A register: `row` counts rows of 32 lanes of a warp; below 0, ~row counts constants. A predicate
 * counts the warp's masks. With `count`, `row` is the place of that many registers in the kernel's
 * `lists`. */
typedef struct ptx_operand {
    int32_t row;
    uint32_t count;
} ptx_operand_t;

typedef struct ptx_instruction {
    uint8_t code, type, from, space, vector, compare, rounding;
    uint32_t flags;
    int32_t predicate; /* -1: none */
    ptx_operand_t operands[PTX_OPERANDS];
    int64_t offset;      /* of the address */
    int32_t target;      /* of a branch or call; bytes of PTX_COPY */
    uint32_t text;       /* where the module's text has it */
    uint32_t file, line; /* the source, by the last .loc; 0: unknown */
} ptx_instruction_t;

/* Rows that the machine sets. */
enum ptx_special { PTX_TID_X, PTX_TID_Y, PTX_CTAID_X, PTX_NTID_X, PTX_NCTAID_X, PTX_SPECIALS };

struct ptx_kernel {
    const char *file, *text;
    char name[64];
    ptx_instruction_t *code; /* of the functions that it may call, then its own */
    uint32_t ncode, begin;
    uint64_t (*constants)[PTX_LANES]; /* the same value in all lanes */
    int32_t *lists;
    uint32_t nconstants, nlists, nrows, npredicates;
    uint64_t arguments_nbytes, shared_nbytes, local_nbytes, data_nbytes;
    unsigned char *data; /* the module's constant arrays */
};

/* Generic addresses outside global memory begin so; the module's arrays, too. */
#define PTX_WINDOW_OF(address) ((address) >> 56)
enum { PTX_WINDOW_SHARED = 0x70, PTX_WINDOW_LOCAL, PTX_WINDOW_PARAM, PTX_WINDOW_DATA };
#define PTX_WINDOW(window) ((uint64_t)(window) << 56)

/* Lanes of a warp that are at the same instruction. */
typedef struct ptx_group {
    uint32_t pc, lanes;
} ptx_group_t;
typedef struct ptx_groups {
    ptx_group_t at[PTX_LANES];
    uint32_t n;
} ptx_groups_t;

typedef struct ptx_warp {
    uint64_t (*rows)[PTX_LANES];
    uint32_t *predicates; /* a bit a lane */
    uint32_t carry;
    uint32_t first;     /* thread of lane 0 */
    ptx_groups_t runs;  /* the last has the lowest pc */
    ptx_groups_t meets; /* at an instruction of the whole warp */
    ptx_groups_t waits; /* at a barrier */
} ptx_warp_t;

typedef struct ptx_machine {
    const ptx_launch_t *launch;
    const ptx_kernel_t *kernel;
    ptx_warp_t *warps;
    uint32_t nwarps, nthreads;
    uint32_t block;
    unsigned char *shared, *local;
    const ptx_instruction_t *now;
    ptx_counts_t counts;
    uint64_t block_instructions; /* before this block */
    ptx_fault_t fault;
    char *report;
} ptx_machine_t;

static inline uint64_t *ptx_row(const ptx_machine_t *m, const ptx_warp_t *warp, int32_t row)
{
    return row >= 0 ? warp->rows[row] : m->kernel->constants[~row];
}
unsigned ptx_type_nbytes(unsigned type);
int ptx_type_is_signed(unsigned type);

/* ptx_faults.c: records the fault of a thread, and what to do about it. */
void ptx_fail(ptx_machine_t *m, ptx_fault_t fault, uint32_t thread, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* ptx_arithmetic.c, ptx_convert.c: lanes of `mask`. */
void ptx_compute(ptx_machine_t *m, ptx_warp_t *warp, const ptx_instruction_t *i, uint32_t mask);
void ptx_convert(const ptx_instruction_t *i, uint32_t mask, uint64_t *d, const uint64_t *a,
                 const uint64_t *b);
void ptx_set_rounding(unsigned rounding);

/* ptx_memory.c: what one thread reads or writes; NULL after a fault. Flags: PTX_VOLATILE,
 * PTX_WRITES. */
enum { PTX_WRITES = 1 };
void ptx_memory_begin(void);
void *ptx_reach(ptx_machine_t *m, unsigned space, uint64_t address, uint32_t nbytes,
                uint32_t thread, unsigned flags);
void ptx_load_or_store(ptx_machine_t *m, ptx_warp_t *warp, const ptx_instruction_t *i,
                       uint32_t mask);
/* cp.async: the bytes are there when the thread has waited for them, and not before. */
void ptx_copy_async(ptx_machine_t *m, ptx_warp_t *warp, const ptx_instruction_t *i, uint32_t mask);

/* ptx_checks.c: who has used which byte. Returns 0 after a fault. */
int ptx_checks_begin(ptx_machine_t *m);
void ptx_checks_begin_block(void);
void ptx_checks_barrier(void);
int ptx_checks_shared(ptx_machine_t *m, uint64_t at, uint32_t nbytes, uint32_t thread,
                      int is_write);
/* The records of the bytes from a multiple of PTX_PAGE. */
enum { PTX_PAGE = 512 };
typedef struct ptx_page ptx_page_t;
ptx_page_t *ptx_checks_page(uint64_t address);
int ptx_checks_global(ptx_machine_t *m, ptx_page_t *page, uint64_t address, uint32_t nbytes,
                      uint32_t thread, int is_write);

/* ptx_warp.c: instructions of the whole warp, and of its lanes in `mask`. */
void ptx_cooperate(ptx_machine_t *m, ptx_warp_t *warp, const ptx_instruction_t *i, uint32_t mask);

/* ptx_counts.c */
void ptx_count_access(ptx_counts_t *counts, unsigned space, const uint64_t *addresses,
                      int64_t offset, uint32_t mask, uint32_t nbytes, int is_write);

#endif
