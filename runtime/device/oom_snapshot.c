/* $FERRY_SNAPSHOT_ON_OOM: a snapshot of a device's memory at the moment of a refusal, without a
 * change of the program. Not here: snapshots (alloc/report/snapshot.h), the reason of the refusal
 * (alloc/verdict.c). */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/environment.h"
#include "runtime/base/fail.h"
#include "runtime/device/memory.h"

FY_COLD void fy__memory_refused(const fy_device_t *device, fy_status_t status)
{
    const char *path = fy__env_file("FERRY_SNAPSHOT_ON_OOM");
    char name[4096];
    fy__error_copy_t verdict;
    if (!path || (status != FY_STATUS_OUT_OF_MEMORY && status != FY_STATUS_PINNED_LIMIT)) return;
    fy__error_save(&verdict); /* the caller receives the verdict, even if the file fails */
    if (!fy__path_expand(path, name, sizeof name)) {
        fy__log(FY_LOG_WARNING, "FERRY_SNAPSHOT_ON_OOM: the path has %zu bytes; %zu is the most",
                strlen(path), sizeof name - 1);
    } else {
        const size_t length = strlen(name);
        const bool is_svg = length > 4 && strcmp(name + length - 4, ".svg") == 0;
        if (fy_memory_snapshot(device, name, is_svg ? FY_SNAPSHOT_SVG : FY_SNAPSHOT_JSON) !=
            FY_STATUS_OK)
            fy__log(FY_LOG_WARNING, "FERRY_SNAPSHOT_ON_OOM=%.200s: %s", path, fy_error_get()->text);
    }
    fy__error_restore(&verdict);
}
