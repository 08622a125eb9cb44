/* Writes the page of a report: its fixed parts, and between them one JSON document. The page loads
 * nothing, and its policy (Content-Security-Policy) permits only its own script and style, by
 * their hashes. In the document "<" is always written as an escape, so no text from a recording can
 * end the element that holds it. Not here: the document (recording_page.c). Next: page.c. */
#ifndef FERRY_TOOLS_PAGE_H_
#define FERRY_TOOLS_PAGE_H_

#include <stddef.h>
#include <stdint.h>

#include <ferry/status.h>

#include "tools/cli/output.h"
#include "tools/cli/sheet.h"

typedef struct page {
    output_t output;
    bool has_value; /* a comma is due before the next value */
} page_t;

/* The file appears at `path` when page_commit succeeds. Fails: IO. */
fy_status_t page_open(page_t *page, const char *path);
/* Fails: IO; then `path` is unchanged. */
fy_status_t page_commit(page_t *page);

/* `bracket` is '{' or '[', and `key` NULL for members of lists and for the document itself. */
void page_begin(page_t *page, const char *key, char bracket);
void page_end(page_t *page, char bracket);
void page_text(page_t *page, const char *key, const char *text);
void page_whole(page_t *page, const char *key, uint64_t value);
/* A separate document. */
void page_json(page_t *page, const char *key, const char *json);
void page_sheet(page_t *page, const char *key, const sheet_t *sheet);

/* The fixed parts, which the build makes of the files in page/ (cmake/report_page.cmake). Hashes
 * are SHA-256 in hexadecimal digits. */
extern const unsigned char report_body[], report_style[], report_script[];
extern const size_t report_body_nbytes, report_style_nbytes, report_script_nbytes;
extern const char report_style_hash[], report_script_hash[];

#endif
