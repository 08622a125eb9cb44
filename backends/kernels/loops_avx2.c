/* The loop table for x86-64-v3: AVX2 (2013) and related extensions. Chosen at run time, so no code
 * outside this file may be compiled for that target: the pragma is before the first include, and
 * only the table is exported. See loops.h. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC target("arch=x86-64-v3")
#define FY__LOOPS_TABLE fy__loops_avx2
#define FY__LOOPS_NAME  "avx2"
#include "backends/kernels/loops_template.h"
#else
typedef int fy__loops_avx2_is_empty; /* ISO C wants a declaration */
#endif
