/* The advisor's findings about a recording, for its report. Not here: finding them
 * (tools/advise/advice.h). Next: findings.c. */
#ifndef FERRY_TOOLS_FINDINGS_H_
#define FERRY_TOOLS_FINDINGS_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferry/status.h>

typedef struct findings {
    char *json; /* an object with the list "findings", as `ferry advise --json` has it; NULL: the
                   recording is no file that can be read again */
    size_t count;
    char step_path[300];          /* of the run's steps; "": it has none, or is no such file */
    uint64_t saving_ns, total_ns; /* the largest saving, of that time; 0: without a model clock */
} findings_t;

/* Reads the recording once more. Free the findings in either case. Fails: IO, CORRUPT_DATA,
 * OUT_OF_MEMORY. */
fy_status_t findings_read(const char *path, findings_t *out_findings);
void findings_free(findings_t *findings);

#endif
