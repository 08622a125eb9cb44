/* For clang-tidy only (tidy.sh puts it before every source): tells the analyzer that FY_FAIL
 * returns the status that it gets, so that `return FY_FAIL(...)` never counts as a success. */
#include <ferry/status.h>
#define fy_error_set(status, ...) ((void)fy_error_set((status), __VA_ARGS__), (status))
