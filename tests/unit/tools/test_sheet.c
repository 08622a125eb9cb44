/* Result tables: the same cells as text, CSV and JSON; and the median that fills them. */

#include <math.h>
#include <unistd.h>

#include "tests/support/harness.h"
#include "tools/cli/tool.h"

static const column_t columns[] = {
    { "name", "what", 0 },
    { "nbytes", "bytes", 0 },
    { "ns", "ns", 1 },
    { "hidden", NULL, 0 },
};

static sheet_t *filled(void)
{
    sheet_t *sheet = sheet_create(columns, 4);
    sheet_text(sheet, "a, \"b\"");
    sheet_int(sheet, 480000);
    sheet_real(sheet, 12.25);
    sheet_int(sheet, 1);
    sheet_text(sheet, NULL);
    sheet_int(sheet, -1);
    sheet_real(sheet, NAN);
    sheet_int(sheet, 2);
    return sheet;
}

TS_TEST(test_text)
{
    char *text;
    size_t nbytes;
    FILE *file = open_memstream(&text, &nbytes);
    sheet_t *sheet = filled();
    sheet_print(sheet, file);
    sheet_print(sheet, NULL);
    fclose(file);
    assert_string_equal(text, "  what     bytes    ns\n"
                              "  a, \"b\"  480000  12.2\n"
                              "  -           -1     -\n");
    free(text);
    sheet_destroy(sheet);
    sheet_destroy(NULL);
}

TS_TEST(test_csv)
{
    char path[] = "/tmp/ferry-sheet-XXXXXX", text[256];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    sheet_t *sheet = filled();
    assert_int_equal(sheet_csv(sheet, path), FY_STATUS_OK);
    FILE *file = fopen(path, "r");
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    unlink(path);
    assert_string_equal(text,
                        "name,nbytes,ns,hidden\r\n\"a, \"\"b\"\"\",480000,12.25,1\r\n,-1,,2\r\n");
    assert_int_equal(sheet_csv(sheet, "/tmp/no/such/folder/x.csv"), FY_STATUS_IO);
    sheet_destroy(sheet);
}

TS_TEST(test_json)
{
    char *text;
    size_t nbytes;
    json_t json = { .file = open_memstream(&text, &nbytes) };
    sheet_t *sheet = filled();
    json_begin_object(&json, NULL);
    sheet_json(sheet, &json, "rows");
    json_end(&json);
    fclose(json.file);
    assert_non_null(strstr(text, "\"name\": \"a, \\\"b\\\"\""));
    assert_non_null(strstr(text, "\"nbytes\": 480000,"));
    assert_non_null(strstr(text, "\"ns\": null,"));
    assert_non_null(strstr(text, "\"name\": null,"));
    free(text);
    sheet_destroy(sheet);
}

TS_TEST(test_many_rows)
{
    sheet_t *sheet = sheet_create(columns, 1);
    for (int i = 0; i < 1000; i++) sheet_text(sheet, "row");
    sheet_destroy(sheet);
}

TS_TEST(test_median)
{
    double odd[] = { 3, 1, 2 }, even[] = { 4, 1, 3, 2 };
    assert_true(worst(odd, 3) == 3);
    assert_true(median(odd, 3) == 2);
    assert_true(median(even, 4) == 2.5);
    assert_true(isnan(median(NULL, 0)) && isnan(worst(NULL, 0)));
    assert_int_equal(status_to_exit(FY_STATUS_OK), 0);
    assert_int_equal(status_to_exit(FY_STATUS_IO), 1);
    assert_int_equal(status_to_exit(FY_STATUS_DEVICE_LOST), 3);
    assert_int_equal(status_to_exit(FY_STATUS_OUT_OF_MEMORY), 4);
}
