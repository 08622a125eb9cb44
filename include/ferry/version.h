/* The version of these headers. fy_version() returns that of the library that runs. */
#ifndef FERRY_VERSION_H_
#define FERRY_VERSION_H_

#include <ferry/status.h>

#define FERRY_VERSION_MAJOR 0
#define FERRY_VERSION_MINOR 1
#define FERRY_VERSION_PATCH 0
/* For #if: 102 for 0.1.2, 10203 for 1.2.3. */
#define FERRY_VERSION_NUMBER \
    (FERRY_VERSION_MAJOR * 10000 + FERRY_VERSION_MINOR * 100 + FERRY_VERSION_PATCH)

#endif
