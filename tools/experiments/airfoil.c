/* Where the airfoil data come from. Not here: reading text (train/table_text.c), the made-up
 * formula (train/table_synthetic.c). */
#include "tools/experiments/parts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "tools/cli/tool.h"

enum {
    SYNTHETIC_ROWS = 1503,
    SYNTHETIC_SEED = 1,
    MOST_NBYTES = 16 << 20 /* the file has 59,984 */
};

/* True, with the path in `out`, if `place` is the file or holds it; also if it cannot be looked at:
 * reading it says why. */
static bool find_file(const char *place, char *out, size_t room)
{
    static const char *const formats[] = { "%s", "%s/airfoil/airfoil_self_noise.dat",
                                           "%s/airfoil_self_noise.dat" };
    struct stat facts;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (snprintf(out, room, formats[i], place) >= (int)room) continue;
        if (stat(out, &facts) == 0 ? !S_ISDIR(facts.st_mode) : errno != ENOENT && errno != ENOTDIR)
            return true;
    }
    return false;
}

fy_status_t airfoil_load(const char *data, char *out_origin, size_t room, fy_table_t **out_table)
{
    *out_table = NULL;
    if (!find_file(data_folder(data), out_origin, room)) {
        const fy_status_t missing =
            TOOL_FAIL(UNAVAILABLE, "%s holds no airfoil/airfoil_self_noise.dat and is no such file",
                      data_folder(data));
        if (!data_may_be_made_up(data, "airfoil", missing)) return missing;
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
