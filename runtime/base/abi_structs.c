/* The rows of libferry's structs with a struct_size, and their fy_..._init functions. */
#include "runtime/base/abi_structs.h"

#include <ferry/ferry.h>

FY__ABI_OPTIONS(FY__ABI_ROW)
FY__ABI_FACTS(FY__ABI_ROW)
FY__ABI_OPTIONS(FY__ABI_INIT_FUNCTION)
