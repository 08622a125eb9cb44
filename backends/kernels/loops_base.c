/* The loop table for any machine: what the compiler's default target has (SSE2 on x86-64). See
 * loops.h. */
#define FY__LOOPS_TABLE fy__loops_base
#define FY__LOOPS_NAME  "base"
#include "backends/kernels/loops_template.h"
