/* Numeric tables: rows and columns of f64 in host memory, read from text, standardised, converted
 * to a host tensor. For data sets that fit into memory. Nothing here uses a device: upload the
 * tensor yourself. */
#ifndef FERRY_TRAIN_TABLE_H_
#define FERRY_TRAIN_TABLE_H_

#include <ferry/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fy_table fy_table_t; /* owned by the caller, never by a scope */

typedef struct fy_table_options {
    size_t struct_size;
    /* ',', ';', '\t', ...; ' ': runs of blanks and tabs; 0: detected from the first data line (, ;
     * or runs) */
    char separator;
    uint32_t header_rows; /* lines to skip before the numbers */
    uint64_t max_nbytes;  /* of text; more is refused, also from an endless pipe */
    uint64_t max_values;  /* rows times columns; more is refused */
} fy_table_options_t;
#define FY_TABLE_OPTIONS_INIT \
    FY_DEFAULTS_(table_options, .max_nbytes = 1ull << 30, .max_values = 1ull << 27)
FY_API void fy_table_options_init(fy_table_options_t *options, size_t nbytes);

/* Reads a table of decimal numbers: one row a line, LF or CRLF, with the same number of fields in
 * each. Blank lines and lines that begin with '#' are skipped. The decimal separator is a point in
 * every locale; nan, inf and hexadecimal are refused. options may be NULL. Cost: holds the text and
 * the values at once.
 * Fails: IO (cannot be opened or read), CORRUPT_DATA (another format, or past a limit),
 * OUT_OF_MEMORY, INVALID_ARGUMENT. Errors name file, line and column (both from 1, in bytes), and
 * the found and expected text. Nothing partial is returned. */
FY_API_STATUS fy_table_read(const char *path, const fy_table_options_t *options,
                            fy_table_t **out_table);
/* The same from `nbytes` of text in memory, borrowed during the call; errors use `name` as the
 * file. */
FY_API_STATUS fy_table_parse(const char *text, size_t nbytes, const char *name,
                             const fy_table_options_t *options, fy_table_t **out_table);
/* A table with a copy of `values` [rows, cols], row-major; values NULL: zeros. Fails:
 * INVALID_ARGUMENT, OUT_OF_MEMORY. */
FY_API_STATUS fy_table_create(uint64_t rows, uint64_t cols, const double *values,
                              fy_table_t **out_table);
/* NULL is ignored. Tensors made from the table stay. */
FY_API void fy_table_destroy(fy_table_t *table);

/* 0 for NULL. */
FY_API uint64_t fy_table_rows(const fy_table_t *table);
FY_API uint64_t fy_table_cols(const fy_table_t *table);
/* [rows, cols], row-major; borrowed until the table is destroyed. */
FY_API double *fy_table_values(fy_table_t *table);

/* Replaces each column by z = (x - mean) / std, with the population's standard deviation (divided
 * by rows), summed in f64. out_mean and out_std, each [cols], may be NULL.
 * Fails: BAD_VALUE (a constant column, whose 0/0 would spread NaN; a column that is not finite; no
 * rows). The table, out_mean and out_std are then unchanged. */
FY_API_STATUS fy_table_standardise(fy_table_t *table, double *out_mean, double *out_std);

/* Writes the table as text that fy_table_read reads: fields separated by tabs, lines by CRLF, nine
 * significant digits. Fails: IO; the file may then be incomplete. */
FY_API_STATUS fy_table_write(const fy_table_t *table, const char *path);

/* A host tensor [row_end - row_begin, cols] with a copy of these rows, rounded to `dtype` (F32 or
 * F64); owned like any tensor.
 * Fails: INVALID_ARGUMENT (rows out of range, another dtype), OUT_OF_MEMORY. */
FY_API_STATUS fy_table_to_tensor(const fy_table_t *table, uint64_t row_begin, uint64_t row_end,
                                 fy_dtype_t dtype, fy_tensor_t **out_tensor);

/* Generated data in the form of the airfoil self-noise measurements, for trying programs only. The
 * same seed gives the same bits on every machine, except the last bit of exp2, log2 and sqrt.
 * Columns: frequency [Hz], angle of attack [degrees], chord [m], speed [m/s], boundary layer [m],
 * sound pressure level [dB]. Ranges and formulas: train/table_synthetic.c.
 * Fails: INVALID_ARGUMENT (no rows), OUT_OF_MEMORY. */
FY_API_STATUS fy_table_synthetic(uint64_t rows, uint64_t seed, fy_table_t **out_table);

#ifdef __cplusplus
}
#endif
#endif
