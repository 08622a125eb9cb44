/* Calls a function with every struct_size that another version of a header could give, and with
 * some that none gives: runtime/base/abi.c has the rules. */
#ifndef FERRY_TESTS_SUPPORT_ABI_SWEEP_H_
#define FERRY_TESTS_SUPPORT_ABI_SWEEP_H_

#include "runtime/base/abi.h"

/* Calls the function under test with `given`, and undoes what it did. */
typedef fy_status_t (*ts_abi_call_fn)(void *given);

typedef struct ts_abi_case {
    const char *name;
    const fy__abi_t *abi;
    ts_abi_call_fn call;
    int is_options; /* read by the library; 0: written */
} ts_abi_case_t;
#define TS_ABI_OPTIONS(struct_name, call)      \
    {                                          \
#call, &fy__abi_##struct_name, call, 1 \
    }
#define TS_ABI_FACTS(struct_name, call)        \
    {                                          \
#call, &fy__abi_##struct_name, call, 0 \
    }

/* Each struct is a block from malloc of exactly its size: AddressSanitizer sees each byte too
 * far. */
void ts_abi_sweep(const ts_abi_case_t *test);

/* A signed field that may be below 0, down to `least`. */
typedef struct ts_abi_signed {
    const char *field; /* "fy_loader_options.seed" */
    int64_t least;
} ts_abi_signed_t;
/* Calls each case that reads options with a negative number in each signed field that `interface`,
 * a file of tests/abi/, has for its struct; each must be refused. The list ends with NULL. */
void ts_abi_refuse_negative(const char *interface, const ts_abi_case_t *cases, size_t count,
                            const ts_abi_signed_t *may);

#endif
