/* The check of transfer options, common to all transfers. */
#ifndef FERRY_TRANSFER_OPTIONS_H_
#define FERRY_TRANSFER_OPTIONS_H_

#include <ferry/transfer.h>

/* Copies the caller's options; NULL is the defaults. INVALID_ARGUMENT for a field that is out of
 * range. */
fy_status_t fy__transfer_options_read(const char *what, const fy_transfer_options_t *options,
                                      fy_transfer_options_t *out_own);

#endif
