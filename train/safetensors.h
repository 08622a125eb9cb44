/* Internals of a safetensors file: its header, read and checked. Shared by the files safetensors*.c
 * and their tests. Not public.
 * See safetensors_header.c. */
#ifndef FERRY_TRAIN_SAFETENSORS_INTERNAL_H_
#define FERRY_TRAIN_SAFETENSORS_INTERNAL_H_

#include <ferry/train/safetensors.h>

/* The dtype of a tensor whose dtype Ferry does not have. */
#define FYT_NO_DTYPE           ((fy_dtype_t)-1)
#define FYT_HEADER_MOST_NBYTES 100000000u /* the reference reader's limit */

typedef struct fyt_header {
    char *text;                     /* the JSON text; names, keys and values point into it */
    fy_safetensors_info_t *tensors; /* [count], in the order of their data */
    size_t *by_name;                /* [count], indices of tensors, by name */
    fy_safetensors_pair_t *pairs;   /* [npairs], of __metadata__, by key */
    size_t count, npairs;
} fyt_header_t;

/* Reads the `nbytes` of `text` (malloc'ed, with space for one more byte; ownership is transferred
 * in either case), for a file with `data_nbytes` after its header; `path` is for errors. On OK,
 * tensors cover the data exactly, without gap or overlap. Fails: CORRUPT_DATA, UNSUPPORTED,
 * OUT_OF_MEMORY. */
fy_status_t fyt_header_read(const char *path, char *text, size_t nbytes, uint64_t data_nbytes,
                            fyt_header_t *out_header);
void fyt_header_free(fyt_header_t *header);
/* Sorts by key; returns a key that occurs twice, or NULL. */
const char *fyt_pairs_sort(size_t count, fy_safetensors_pair_t *pairs);

/* The format's name for a dtype: "F32". */
const char *fyt_dtype_text(fy_dtype_t dtype);
/* Where the reference writer puts a dtype: those of a larger rank come first. */
int fyt_dtype_order(fy_dtype_t dtype);

#endif
