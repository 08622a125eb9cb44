/* The page, in the order of its parts. */
#include "tools/report/page.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/json.h"
#include "tools/cli/tool.h"

static void put(page_t *page, const void *bytes, size_t nbytes)
{
    output_write(&page->output, bytes, nbytes);
}

static void put_string(page_t *page, const char *text) { put(page, text, strlen(text)); }

/* Hexadecimal digits as base64 (RFC 4648, section 4), which policies have. */
static void put_base64(page_t *page, const char *hex)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const size_t nbytes = strlen(hex) / 2;
    for (size_t i = 0; i < nbytes; i += 3) {
        const char three[7] = { hex[2 * i],
                                hex[2 * i + 1],
                                i + 1 < nbytes ? hex[2 * i + 2] : '0',
                                i + 1 < nbytes ? hex[2 * i + 3] : '0',
                                i + 2 < nbytes ? hex[2 * i + 4] : '0',
                                i + 2 < nbytes ? hex[2 * i + 5] : '0',
                                0 };
        const unsigned long bits = strtoul(three, NULL, 16);
        const char four[4] = { digits[bits >> 18], digits[bits >> 12 & 63],
                               i + 1 < nbytes ? digits[bits >> 6 & 63] : '=',
                               i + 2 < nbytes ? digits[bits & 63] : '=' };
        put(page, four, sizeof four);
    }
}

static void put_head(page_t *page)
{
    put_string(page, "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                     "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                     "base-uri 'none'; form-action 'none'; script-src 'sha256-");
    put_base64(page, report_script_hash);
    put_string(page, "'; style-src 'sha256-");
    put_base64(page, report_style_hash);
    put_string(page, "'\">\n<meta name=\"viewport\" content=\"width=device-width\">\n"
                     "<title>Ferry report</title>\n<style>");
    put(page, report_style, report_style_nbytes);
    put_string(page, "</style>\n</head>\n");
    put(page, report_body, report_body_nbytes);
    put_string(page, "<script type=\"application/json\" id=\"data\">");
}

fy_status_t page_open(page_t *page, const char *path)
{
    page->has_value = false;
    FY_TRY(output_begin(&page->output, path));
    put_head(page);
    return FY_STATUS_OK;
}

fy_status_t page_commit(page_t *page)
{
    put_string(page, "</script>\n<script>");
    put(page, report_script, report_script_nbytes);
    put_string(page, "</script>\n</html>\n");
    return output_commit(&page->output);
}

/* ---- the document ---- */

static void put_quoted(page_t *page, const char *text)
{
    put(page, "\"", 1);
    while (*text) {
        char piece[FY__JSON_QUOTED];
        const size_t nbytes = fy__json_quote_next(&text, piece);
        if (piece[0] == '<')
            put_string(page, "\\u003c");
        else
            put(page, piece, nbytes);
    }
    put(page, "\"", 1);
}

static void put_key(page_t *page, const char *key)
{
    if (page->has_value) put(page, ",", 1);
    page->has_value = true;
    if (!key) return;
    put_quoted(page, key);
    put(page, ":", 1);
}

void page_begin(page_t *page, const char *key, char bracket)
{
    put_key(page, key);
    put(page, &bracket, 1);
    page->has_value = false;
}

void page_end(page_t *page, char bracket)
{
    put(page, &bracket, 1);
    page->has_value = true;
}

void page_text(page_t *page, const char *key, const char *text)
{
    put_key(page, key);
    put_quoted(page, text);
}

void page_whole(page_t *page, const char *key, uint64_t value)
{
    char digits[20];
    size_t n = sizeof digits;
    put_key(page, key);
    do digits[--n] = (char)('0' + value % 10);
    while (value /= 10);
    put(page, digits + n, sizeof digits - n);
}

/* A document; only its texts can have a "<". */
static void put_escaped(page_t *page, const char *json)
{
    for (; *json; json++) put(page, *json == '<' ? "\\u003c" : json, *json == '<' ? 6 : 1);
}

void page_json(page_t *page, const char *key, const char *json)
{
    put_key(page, key);
    put_escaped(page, json);
}

void page_sheet(page_t *page, const char *key, const sheet_t *sheet)
{
    char *text = NULL;
    size_t nbytes = 0;
    json_t json = { .file = open_memstream(&text, &nbytes) };
    put_key(page, key);
    if (json.file) sheet_json(sheet, &json, NULL);
    if (tool_close_text(json.file, &text)) {
        put_escaped(page, text);
    } else if (!page->output.error) {
        page->output.error = ENOMEM;
        snprintf(page->output.replace.problem, sizeof page->output.replace.problem,
                 "no memory for a table");
    }
    free(text);
}
