/* Writes the synthetic traces to a folder: make_traces FOLDER. How the recorded ones were made:
 * README.md. */
#include <stdio.h>

#include "tests/traces/synthetic.h"
#include "tools/cli/tool.h"

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: make_traces FOLDER\n");
        return 2;
    }
    for (const synthetic_t *synthetic = synthetic_traces; synthetic->name; synthetic++) {
        traces_t traces;
        char path[4096];
        snprintf(path, sizeof path, "%s/%s.trace", argv[1], synthetic->name);
        synthetic_make(synthetic, &traces);
        const fy_status_t status = trace_write(&traces.list[0], synthetic->comment, path);
        traces_free(&traces);
        if (status != FY_STATUS_OK) {
            fprintf(stderr, "make_traces: %s\n", fy_error_get()->text);
            return 1;
        }
    }
    return 0;
}
