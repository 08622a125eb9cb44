/* Where the airfoil data come from. Not here: reading text (train/table_text.c), the made-up
 * formula (train/table_synthetic.c). */
#include "tools/experiments/airfoil.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "runtime/base/environment.h"
#include "tools/cli/tool.h"

enum {
    SYNTHETIC_ROWS = 1503,
    SYNTHETIC_SEED = 1,
    MOST_NBYTES = 16 << 20 /* the file has 59,984 */
};

/* True, with the path in `out`, if `place` is the file or holds it. */
static bool find_file(const char *place, char *out, size_t room)
{
    static const char *const formats[] = { "%s", "%s/airfoil/airfoil_self_noise.dat",
                                           "%s/airfoil_self_noise.dat" };
    struct stat facts;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (snprintf(out, room, formats[i], place) < (int)room && stat(out, &facts) == 0 &&
            !S_ISDIR(facts.st_mode))
            return true;
    return false;
}

fy_status_t airfoil_load(const char *data, char *out_origin, size_t room, fy_table_t **out_table)
{
    const char *environment = fy__env_file("FERRY_DATA");
    *out_table = NULL;
    bool found = find_file(data          ? data
                           : environment ? environment
                                         : "../shared/data",
                           out_origin, room);
    if (!found && data)
        return TOOL_FAIL(
            IO, "--data: %s holds no airfoil/airfoil_self_noise.dat and is no such file", data);
    if (!found && environment) {
        fprintf(stderr, "ferry: $FERRY_DATA, %s, holds no airfoil/airfoil_self_noise.dat\n",
                environment);
        found = find_file("../shared/data", out_origin, room);
    }
    if (!found) {
        fprintf(stderr, "ferry: the airfoil data are not here (--data, $FERRY_DATA, "
                        "../shared/data); made-up data in the same format serve\n");
        snprintf(out_origin, room, "synthetic");
        return fy_table_synthetic(SYNTHETIC_ROWS, SYNTHETIC_SEED, out_table);
    }
    fy_table_options_t options = FY_TABLE_OPTIONS_INIT;
    options.max_nbytes = MOST_NBYTES;
    FY_TRY(fy_table_read(out_origin, &options, out_table));
    if (fy_table_cols(*out_table) == AIRFOIL_COLUMNS) return FY_STATUS_OK;
    fy_status_t status = TOOL_FAIL(CORRUPT_DATA, "%s has %llu columns, not %d", out_origin,
                                   (unsigned long long)fy_table_cols(*out_table), AIRFOIL_COLUMNS);
    fy_table_destroy(*out_table);
    *out_table = NULL;
    return status;
}
