/* For clang-tidy only (tidy.sh puts it before every source): tells the analyzer that a failure's
 * status is the one it was given, so that `return FY_FAIL(...)` is never taken for a success. */
#include <ferry/status.h>
#define fy_error_set(status, ...) ((void)fy_error_set((status), __VA_ARGS__), (status))
