/* Tables: accepted and refused files with their error texts, standardising, conversion to a tensor,
 * the synthetic data set. */
#include <math.h>
#include <unistd.h>

#include <ferry/train/train.h>

#include "tests/support/harness.h"

static fy_status_t parse(const char *text, const fy_table_options_t *options,
                         fy_table_t **out_table)
{
    return fy_table_parse(text, strlen(text), "t", options, out_table);
}

static void assert_table(const char *text, const fy_table_options_t *options, uint64_t rows,
                         uint64_t cols, const double *values)
{
    fy_table_t *table;
    ts_ok(parse(text, options, &table));
    assert_int_equal(fy_table_rows(table), rows);
    assert_int_equal(fy_table_cols(table), cols);
    for (uint64_t i = 0; i < rows * cols; i++) assert_true(fy_table_values(table)[i] == values[i]);
    fy_table_destroy(table);
}

/* The error text must contain `said`: the position, then the error. */
static void assert_refused(const char *text, const fy_table_options_t *options,
                           fy_status_t expected, const char *said)
{
    fy_table_t *table = (fy_table_t *)1;
    ts__fails(parse(text, options, &table), expected, text, __FILE__, __LINE__, said, ts__end);
    assert_null(table);
}

TS_TEST(test_separators_and_line_ends)
{
    static const double v[] = { 1, -2.5, 3e2, 4, 5, .5 };
    assert_table("1 -2.5 3e2\n4 5 .5\n", NULL, 2, 3, v);
    assert_table("1\t-2.5\t3e2\r\n4\t5\t.5\r\n", NULL, 2, 3, v);
    assert_table("  1 \t -2.5   3E+2  \n\n# note\n4 5 .5", NULL, 2, 3, v);
    assert_table("1,-2.5,3e2\r\n4, 5 ,0.5", NULL, 2, 3, v);
    assert_table("1;-2.5;3e2\n4;5;0.5\n", NULL, 2, 3, v);
    assert_table("\xEF\xBB\xBF"
                 "1 -2.5 3e2\n4 5 .5\n",
                 NULL, 2, 3, v);
    assert_table("7", NULL, 1, 1, (double[]){ 7 });
}

TS_TEST(test_options)
{
    fy_table_options_t options = FY_TABLE_OPTIONS_INIT;
    options.header_rows = 2;
    options.separator = '\t';
    assert_table("a\tb\nunits, here\n1\t2\n", &options, 1, 2, (double[]){ 1, 2 });
    assert_refused("a\nb\n1\t\t2\n", &options, FY_STATUS_CORRUPT_DATA,
                   "t:3:3: a number was expected where a field is empty");
    options = (fy_table_options_t)FY_TABLE_OPTIONS_INIT;
    options.max_values = 3;
    assert_refused("1 2\n3 4\n", &options, FY_STATUS_CORRUPT_DATA, "max_values = 3");
    options.max_nbytes = 4;
    assert_refused("1 2\n3 4\n", &options, FY_STATUS_CORRUPT_DATA, "max_nbytes = 4");
    options.separator = 'e';
    assert_refused("1", &options, FY_STATUS_INVALID_ARGUMENT, "separator");
}

TS_TEST(test_malformed)
{
    static const char *const rows[][2] = {
        { "1 2\n3 abc\n", "t:2:3: a decimal number was expected, found 'abc'" },
        { "1 2\n3\n", "t:2:2: the rows above have 2 fields, this one ends after 1, found ''" },
        { "1 2\n3 4 5\n", "t:2:5: the rows above have 2 fields, this one has more, found '5'" },
        { "1,2\n3,,4\n", "t:2:3:" },
        { "1,2\n3,4,\n", "t:2:5:" },
        { "1,2\n,4\n", "t:2:1: a number was expected where a field is empty, found ''" },
        { "1,\n", "t:1:3: a number was expected where a field is empty, found ''" },
        { "1,2\n3,4 5\n", "t:2:3: a decimal number was expected, found '4 5'" },
        { "1;2\n1,5;2\n", "t:2:1: a decimal number was expected, found '1,5'" },
        { "a,b\n1,2\n", "t:1:1: a decimal number was expected, found 'a'" },
        { "1 nan\n", "t:1:3: a decimal number was expected, found 'nan'" },
        { "inf\n", "t:1:1: a decimal number was expected, found 'inf'" },
        { "0x10\n", "t:1:1: a decimal number was expected, found '0x10'" },
        { "1 1e999\n", "t:1:3: the number is too large for f64, found '1e999'" },
        { "1 2e\n", "t:1:3: a decimal number was expected, found '2e'" },
        { "1e+\n", "t:1:1:" },
        { "1 -\n", "t:1:3: a decimal number was expected, found '-'" },
        { "1 1.2.3\n", "t:1:3: a decimal number was expected, found '1.2.3'" },
        { "1 2x\n", "found '2x'" },
        { "1\rmore\n", "t:1:1:" },
        { "", "no numbers in 0 bytes (0 header lines skipped)" },
        { "\n  \n\t\r\n", "no numbers in 7 bytes (0 header lines skipped)" },
        { "\n # only this\n", "no numbers" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_refused(rows[i][0], NULL, FY_STATUS_CORRUPT_DATA, rows[i][1]);
    fy_table_t *table;
    ts_fails_with(fy_table_parse("1\0002", 3, "t", NULL, &table), CORRUPT_DATA,
                  "byte 1 is NUL: this is no text");
    ts_fails_with(fy_table_parse("\xff\xfe"
                                 "1\0\n",
                                 6, "t", NULL, &table),
                  CORRUPT_DATA, "byte 3 is NUL: this is no text"); /* UTF-16 */
    ts_fails(fy_table_parse(NULL, 3, "t", NULL, &table), INVALID_ARGUMENT);
}

/* Every prefix of a good file is read or refused; none crashes (the sanitizers watch). */
TS_TEST(test_truncation)
{
    static const char text[] = "# h\r\n1.5\t-2e3\t3\r\n4\t5\t6\r\n";
    for (size_t n = 0; n < sizeof text; n++) {
        fy_table_t *table;
        if (fy_table_parse(text, n, "t", NULL, &table) == FY_STATUS_OK) {
            assert_in_range(fy_table_rows(table), 1, 2);
            fy_table_destroy(table);
        }
    }
}

TS_TEST(test_files)
{
    char path[] = "/tmp/ferry-table-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    fy_table_t *made, *read;
    ts_ok(fy_table_synthetic(300, 1, &made));
    ts_ok(fy_table_write(made, path));
    ts_ok(fy_table_read(path, NULL, &read));
    assert_int_equal(fy_table_rows(read), 300);
    assert_int_equal(fy_table_cols(read), 6);
    for (int i = 0; i < 1800; i++)
        assert_true(fabs(fy_table_values(read)[i] - fy_table_values(made)[i]) <=
                    1e-8 * fabs(fy_table_values(made)[i]));
    fy_table_destroy(read);
    FILE *damaged = fopen(path, "a");
    assert_non_null(damaged);
    assert_true(fputs("four", damaged) > 0 && fclose(damaged) == 0);
    const int files = ts_open_files();
    ts_fails_with(fy_table_read(path, NULL, &read), CORRUPT_DATA, path,
                  ":301:1: a decimal number was expected, found 'four'");
    assert_int_equal(ts_open_files(), files);
    fy_table_options_t options = FY_TABLE_OPTIONS_INIT;
    options.max_nbytes = 1000;
    ts_fails(fy_table_read(path, &options, &read), CORRUPT_DATA);
    assert_null(read);
    unlink(path);
    ts_fails_with(fy_table_read(path, NULL, &read), IO, path);
    ts_fails(fy_table_read("/tmp", NULL, &read), IO);
    ts_fails(fy_table_write(made, "/tmp/no/such/folder/x"), IO);
    /* an endless file */
    ts_fails_with(fy_table_read("/dev/zero", NULL, &read), IO, "/dev/zero: it is a device");
    fy_table_destroy(made);
}

TS_TEST(test_standardise)
{
    fy_table_t *table;
    double mean[2], std[2];
    ts_ok(fy_table_create(4, 2, (double[]){ 1, 10, 2, 10, 3, 30, 4, 30 }, &table));
    ts_ok(fy_table_standardise(table, mean, std));
    assert_true(fabs(mean[0] - 2.5) < 1e-15 && fabs(mean[1] - 20) < 1e-15);
    assert_true(fabs(std[0] - sqrt(1.25)) < 1e-15 && fabs(std[1] - 10) < 1e-15);
    assert_true(fabs(fy_table_values(table)[0] + 1.5 / sqrt(1.25)) < 1e-15);
    assert_true(fy_table_values(table)[7] == 1);
    fy_table_destroy(table);

    /* 0.1 has no exact f64, so the mean of many is not exactly 0.1: still constant. */
    ts_ok(fy_table_create(1000, 2, NULL, &table));
    for (int r = 0; r < 1000; r++)
        fy_table_values(table)[2 * r] = r, fy_table_values(table)[2 * r + 1] = 0.1;
    mean[0] = -1;
    ts_fails_with(fy_table_standardise(table, mean, std), BAD_VALUE, "column 1 is constant");
    assert_true(fy_table_values(table)[2] == 1 && mean[0] == -1); /* unchanged */
    fy_table_values(table)[0] = NAN;
    ts_fails(fy_table_standardise(table, NULL, NULL), BAD_VALUE);
    fy_table_destroy(table);

    ts_ok(fy_table_create(0, 2, NULL, &table));
    ts_fails(fy_table_standardise(table, NULL, NULL), BAD_VALUE);
    fy_table_destroy(table);
    ts_fails(fy_table_standardise(NULL, NULL, NULL), INVALID_ARGUMENT);
}

TS_TEST(test_to_tensor)
{
    fy_table_t *table;
    fy_tensor_t *tensor;
    void *data;
    ts_ok(fy_table_create(3, 2, (double[]){ 1, 2, 3, 4, 0.1, 6 }, &table));
    ts_ok(fy_table_to_tensor(table, 1, 3, FY_DTYPE_F32, &tensor));
    const fy_tensor_info_t info = ts_info(tensor);
    assert_true(info.device == fy_device_host() && info.dtype == FY_DTYPE_F32 && info.rank == 2);
    assert_true(info.dims[0] == 2 && info.dims[1] == 2);
    ts_ok(fy_tensor_map(tensor, FY_ACCESS_READ, &data));
    assert_true(((float *)data)[0] == 3 && ((float *)data)[2] == 0.1f);
    fy_tensor_destroy(tensor);
    ts_ok(fy_table_to_tensor(table, 0, 3, FY_DTYPE_F64, &tensor));
    ts_ok(fy_tensor_map(tensor, FY_ACCESS_READ, &data));
    assert_true(((double *)data)[4] == 0.1);
    fy_tensor_destroy(tensor);
    /* no rows: legal */
    ts_ok(fy_table_to_tensor(table, 3, 3, FY_DTYPE_F32, &tensor));
    fy_tensor_destroy(tensor);
    ts_fails(fy_table_to_tensor(table, 1, 4, FY_DTYPE_F32, &tensor), INVALID_ARGUMENT);
    assert_null(tensor);
    ts_fails(fy_table_to_tensor(table, 2, 1, FY_DTYPE_F32, &tensor), INVALID_ARGUMENT);
    ts_fails(fy_table_to_tensor(table, 0, 1, FY_DTYPE_I32, &tensor), INVALID_ARGUMENT);
    fy_table_destroy(table);
}

TS_TEST(test_sizes)
{
    fy_table_t *table;
    ts_fails(fy_table_create(UINT64_MAX, 2, NULL, &table), INVALID_ARGUMENT);
    ts_fails(fy_table_create(1ull << 62, 1, NULL, &table), INVALID_ARGUMENT);
    assert_null(table);
    assert_int_equal(fy_table_rows(NULL), 0);
    assert_int_equal(fy_table_cols(NULL), 0);
    fy_table_destroy(NULL);
}

TS_TEST(test_synthetic)
{
    static const double low[] = { 200, 0, 0.0254, 31.7, 0, 90 },
                        high[] = { 20000, 22.2, 0.3048, 71.3, 0.1, 155 };
    fy_table_t *a, *b, *c;
    double mean[6], std[6];
    ts_ok(fy_table_synthetic(1503, 7, &a));
    ts_ok(fy_table_synthetic(1503, 7, &b));
    ts_ok(fy_table_synthetic(1503, 8, &c));
    assert_memory_equal(fy_table_values(a), fy_table_values(b), 1503 * 6 * sizeof(double));
    assert_memory_not_equal(fy_table_values(a), fy_table_values(c), 1503 * 6 * sizeof(double));
    for (int i = 0; i < 1503 * 6; i++) {
        assert_true(fy_table_values(a)[i] >= low[i % 6]);
        assert_true(fy_table_values(a)[i] <= high[i % 6]);
    }
    ts_ok(fy_table_standardise(a, mean, std));
    assert_true(mean[5] > 110 && mean[5] < 140 && std[5] > 3 && std[5] < 12);
    fy_table_destroy(c);
    ts_fails(fy_table_synthetic(0, 1, &c), INVALID_ARGUMENT);
    assert_null(c);
    fy_table_destroy(a);
    fy_table_destroy(b);
}
