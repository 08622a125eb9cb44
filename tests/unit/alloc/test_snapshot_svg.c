/* Pictures of snapshots: every block is in exactly one rectangle, there are few rectangles even for
 * many blocks, lines wrap inside the page, and the output is XML for any scope name. Not here: the
 * content of a snapshot (tests/conformance/test_snapshot.c). */

#include "alloc/report/snapshot.h"
#include "runtime/base/c_locale.h"
#include "tests/support/harness.h"

enum { BLOCKS = 10000, SEGMENTS = 3 };

static fy__snapshot_block_t blocks[BLOCKS + 8];
static fy__snapshot_segment_t segments[SEGMENTS];
static fy__snapshot_pool_t pool;
static fy__snapshot_t snapshot;
static char *svg;

static fy__snapshot_block_t *add(fy__snapshot_segment_t *segment, uint64_t nbytes,
                                 fy__snapshot_state_t state)
{
    fy__snapshot_block_t *block = &blocks[snapshot.nblocks++];
    *block = (fy__snapshot_block_t){ .offset = segment->nbytes,
                                     .nbytes = nbytes,
                                     .state = (uint8_t)state,
                                     .category = FY__SNAPSHOT_NO_CATEGORY };
    if (state == FY__SNAPSHOT_LIVE) {
        block->requested = nbytes - 1;
        block->id = snapshot.nblocks;
        block->category = (uint8_t)(snapshot.nblocks % FY_CATEGORY_COUNT);
        block->scope = "train/<&\"'\x01\xff\xed\xa0\x80\xef\xbf\xbf>/\xc3\xa9";
    }
    segment->nbytes += nbytes;
    segment->nblocks++;
    return block;
}

static fy__snapshot_segment_t *begin(uint64_t address)
{
    fy__snapshot_segment_t *segment = &segments[snapshot.nsegments++];
    *segment = (fy__snapshot_segment_t){ address, 0, snapshot.nblocks, 0 };
    pool.nsegments++;
    return segment;
}

static void start(void)
{
    pool = (fy__snapshot_pool_t){
        .name = "sim:0", .stats = { .cached = 100, .largest_free = 50, .limit = FY_UNLIMITED }
    };
    snapshot = (fy__snapshot_t){ .device = "sim:0",
                                 .model = "a<b",
                                 .npools = 1,
                                 .pools = &pool,
                                 .segments = segments,
                                 .blocks = blocks };
}

static void draw(void)
{
    size_t nbytes;
    free(svg);
    FILE *file = open_memstream(&svg, &nbytes);
    fy__snapshot_write_svg(&snapshot, file);
    fclose(file);
    assert_int_equal(strlen(svg), nbytes);
}

/* Returns the number of blocks in all rectangles; *out_marks: the number of rectangles. */
static size_t blocks_in_marks(size_t *out_marks)
{
    size_t count = 0;
    *out_marks = 0;
    for (const char *s = svg; (s = strstr(s, "<title>")); ++*out_marks) {
        char *end;
        const unsigned long n = strtoul(s += 7, &end, 10);
        count += end != s && strncmp(end, " blocks, ", 9) == 0 ? n : 1;
    }
    return count;
}

/* Tags open and close in order, and between them is only text and the five entities. */
static void expect_well_formed(void)
{
    const char *open[16];
    int depth = 0;
    assert_int_equal(strncmp(svg, "<?xml", 5), 0);
    for (const char *s = strchr(svg, '>') + 1; *s; s++) {
        assert_true((unsigned char)*s >= ' ' || *s == '\n');
        if (*s == '&')
            assert_true(strncmp(s, "&lt;", 4) == 0 || strncmp(s, "&gt;", 4) == 0 ||
                        strncmp(s, "&amp;", 5) == 0);
        if (*s != '<') continue;
        const char *name = s + 1 + (s[1] == '/');
        const size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyz");
        const char *end = strchr(name, '>');
        assert_non_null(end);
        assert_true(length > 0);
        if (s[1] == '/') {
            assert_true(depth > 0);
            assert_int_equal(strncmp(open[--depth], name, length), 0);
        } else if (end[-1] != '/') {
            assert_true(depth < 16);
            open[depth++] = name;
        }
        s = end;
    }
    assert_int_equal(depth, 0);
}

/* Of the rectangle at `s`: the number after `key`, up to the closing quote. */
static double attribute(const char *s, const char *key)
{
    char *end;
    const char *at = strstr(s, key);
    assert_true(at && at < strchr(s, '>'));
    const double value = fy__strtod(at + strlen(key), &end);
    assert_int_equal(*end, '"');
    return value;
}

static void expect_inside_page(void)
{
    static const char head[] = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1200\" height=\"";
    const char *begin = strstr(svg, head);
    assert_non_null(begin);
    const double page = fy__strtod(begin + strlen(head), NULL);
    for (const char *s = svg; (s = strstr(s, "<rect x=")); s++) {
        const double x = attribute(s, " x=\""), y = attribute(s, " y=\""),
                     width = attribute(s, " width=\""), height = attribute(s, " height=\"");
        /* a block that is widened to a pixel may reach into the margin */
        assert_true(x >= 16 && width > 0 && x + width <= 1185.01);
        assert_true(y >= 0 && y + height <= page);
    }
}

TS_TEST(many_small_blocks_make_few_marks)
{
    size_t marks;
    start();
    fy__snapshot_segment_t *segment = begin(0x1000);
    for (int i = 0; i < BLOCKS; i++)
        add(segment, 64 + (uint64_t)(i * 37 % 4000) * 64,
            (fy__snapshot_state_t)(i % FY__SNAPSHOT_STATE_COUNT));
    segment = begin(0x100000000000);
    add(segment, UINT64_C(100) << 30, FY__SNAPSHOT_LIVE);
    draw();
    assert_int_equal(blocks_in_marks(&marks), BLOCKS + 1);
    assert_true(marks < 3000); /* 1168 pixels a line; the small blocks fill at most two lines */
    assert_non_null(strstr(svg, " blocks thinner than a pixel are drawn together"));
    expect_well_formed();
    expect_inside_page();
}

TS_TEST(large_segments_wrap)
{
    size_t marks, rects = 0;
    start();
    fy__snapshot_segment_t *segment = begin(0x1000);
    add(segment, (UINT64_C(1) << 30) + 12345, FY__SNAPSHOT_LIVE);
    add(segment, UINT64_C(3) << 28, FY__SNAPSHOT_FREE);
    fy__snapshot_block_t *pending = add(segment, UINT64_C(1) << 29, FY__SNAPSHOT_PENDING);
    pending->nstreams = 2;
    pending->streams[0] = 3;
    pending->streams[1] = 511;
    segment = begin(0x200000000);
    add(segment, 2 << 20, FY__SNAPSHOT_FREE);
    segment = begin(0x300000000);
    add(segment, 256, FY__SNAPSHOT_LIVE);
    draw();
    assert_int_equal(blocks_in_marks(&marks), 5);
    assert_int_equal(marks, 5);
    assert_non_null(strstr(svg, "on stream 3, 511"));
    assert_non_null(strstr(svg, "(1073754169 bytes, 1073754168 asked for)"));
    for (const char *s = svg; (s = strstr(s, "<rect x=")); s++) rects++;
    assert_true(rects > 12); /* one for each line that a block touches */
    expect_well_formed();
    expect_inside_page();
}

TS_TEST(names_are_escaped)
{
    start();
    add(begin(0x1000), 4096, FY__SNAPSHOT_LIVE);
    draw();
    assert_non_null(strstr(svg, "scope train/&lt;&amp;\"'??????"));
    assert_non_null(strstr(svg, "/\xc3\xa9"));
    assert_non_null(strstr(svg, "a&lt;b"));
    expect_well_formed();
}

TS_TEST(an_empty_pool_is_drawn_as_one_line)
{
    size_t marks;
    start();
    draw();
    assert_int_equal(blocks_in_marks(&marks), 0);
    expect_well_formed();
    expect_inside_page();
}

static int end(void **state)
{
    (void)state;
    free(svg);
    return 0;
}

TS_SUITE(.end = end);
