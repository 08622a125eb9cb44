/* Passes text to the reader of tables; the first byte chooses separator and header rows. Accepted
 * text must be numbers, in full rows.
 * Not here: opening files. How to run: README.md. */
#include <math.h>

#include <ferry/train/table.h>

#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    static const char separators[] = { 0, ' ', ',', ';', '\t', 'x', '1', '#' };
    fy_table_options_t options = FY_TABLE_OPTIONS_INIT;
    fy_table_t *table = NULL;
    if (!nbytes) return 0;
    options.separator = separators[data[0] & 7];
    options.header_rows = data[0] >> 3 & 3;
    options.max_values = 4096;
    if (fy_table_parse((const char *)data + 1, nbytes - 1, "fuzz", &options, &table) !=
        FY_STATUS_OK) {
        if (table) abort();
        return 0;
    }
    const uint64_t count = fy_table_rows(table) * fy_table_cols(table);
    if (!count || count > options.max_values) abort();
    for (uint64_t i = 0; i < count; i++)
        if (!isfinite(fy_table_values(table)[i])) abort();
    fy_table_destroy(table);
    return 0;
}
