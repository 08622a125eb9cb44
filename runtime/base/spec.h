/* Parses device specs: "sim:0?profile=h200&capacity=8GiB". Text only; registry.c and the backends
 * interpret the options. */
#ifndef FERRY_RUNTIME_BASE_SPEC_H_
#define FERRY_RUNTIME_BASE_SPEC_H_

#include <stdbool.h>
#include <stdint.h>

#include <ferry/backend.h>

enum { FY__SPEC_OPTIONS = 12, FY__SPEC_TEXT = 512 /* long enough for a profile's path */ };

typedef struct fy__spec {
    char backend[16];
    int index;
    char options[FY__SPEC_TEXT]; /* everything after '?', as given */
    char text[FY__SPEC_TEXT];    /* the same, split into the keys and values below */
    size_t noptions;
    fy_backend_option_t option[FY__SPEC_OPTIONS]; /* point into text */
} fy__spec_t;

/* INVALID_ARGUMENT names the malformed part and shows a valid spec. */
fy_status_t fy__spec_parse(const char *text, fy__spec_t *out_spec);
/* "64", "8GiB", "1.5MiB", "4k": bytes. KiB/MiB/GiB/TiB and K/M/G/T are powers of 1024, kB/MB/GB/TB
 * of 1000. */
bool fy__bytes_parse(const char *text, uint64_t *out_nbytes);

#endif
