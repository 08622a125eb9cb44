/* The sentence at the head of a report. Not here: the figures (recording.h). Next: summary.c. */
#ifndef FERRY_TOOLS_SUMMARY_H_
#define FERRY_TOOLS_SUMMARY_H_

#include "tools/report/recording.h"

/* "61 % of the step ...", of one run. */
void summary_of(const recording_t *run, char *out_text, size_t size);
/* How the second run differs from the first one. */
void summary_of_two(const recording_t *first, const recording_t *second, char *out_text,
                    size_t size);
/* "8.25 ms"; `out_text` has SUMMARY_TIME bytes. Returns it. */
enum { SUMMARY_TIME = 32 };
const char *summary_time(double ns, char *out_text);

#endif
