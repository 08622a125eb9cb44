/* Where commands look for data sets. Not here: opening them (train/dataset_open.c,
 * tools/experiments/airfoil.c), fetching them (scripts/get-data.sh). */
#include "runtime/base/environment.h"
#include "tools/cli/tool.h"

const char *data_folder(const char *given)
{
    const char *environment = fy__env_file("FERRY_DATA");
    return given ? given : environment ? environment : "data";
}

bool data_may_be_made_up(const char *given, const char *name, fy_status_t status)
{
    if (given || status != FY_STATUS_UNAVAILABLE) return false;
    fprintf(stderr,
            "ferry: the data set %s is not in %s (--data, else $FERRY_DATA, else data/); made-up "
            "data in the same form serve\n",
            name, data_folder(NULL));
    return true;
}
