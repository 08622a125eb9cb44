/* One recording as an object of a report's document: figures, tables, slices, memory. Its keys are
 * read by page/run.js and nothing else. Not here: finding the figures (recording.h). Next:
 * recording_page.c. */
#ifndef FERRY_TOOLS_RECORDING_PAGE_H_
#define FERRY_TOOLS_RECORDING_PAGE_H_

#include "tools/report/page.h"
#include "tools/report/recording.h"

void recording_page_write(page_t *page, recording_t *run);

#endif
