/* The loop table for x86-64-v4: AVX-512 (2017) and related extensions. Chosen at run time, so no
 * code outside this file may be compiled for that target: the pragma is before the first include,
 * and only the table is exported. See loops.h. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC target("arch=x86-64-v4")
#define FY__LOOPS_TABLE fy__loops_avx512
#define FY__LOOPS_NAME  "avx512"
#include "backends/kernels/loops_template.h"
#else
typedef int fy__loops_avx512_is_empty; /* ISO C wants a declaration */
#endif
