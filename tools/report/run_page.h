/* One run as an object of a report's document: figures, tables, slices, memory. Its keys are read
 * by page/run.js and nothing else. Not here: finding the figures (run.h). Next: run_page.c. */
#ifndef FERRY_TOOLS_RUN_PAGE_H_
#define FERRY_TOOLS_RUN_PAGE_H_

#include "tools/report/page.h"
#include "tools/report/run.h"

void run_page_write(page_t *page, run_t *run);

#endif
