/* The rows of libferry_train's structs with a struct_size, and their fy_..._init functions. */
#include "abi.h"

#include <ferry/train/train.h>

FYT_ABI_OPTIONS(FY__ABI_ROW)
FYT_ABI_FACTS(FY__ABI_ROW)
FYT_ABI_OPTIONS(FY__ABI_INIT_FUNCTION)
