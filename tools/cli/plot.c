/* Speaks to gnuplot. Not here: which figures there are (exp_*.c, bench_*.c). Rules for when gnuplot
 * is missing: plot.h. */
#include "tools/cli/plot.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/environment.h"
#include "tools/cli/tool.h"

static bool have_program(const char *name)
{
    char path[4096];
    const char *folder = fy__env_file("PATH"); /* a file variable, because the program is started */
    while (folder && *folder) {
        int n = (int)strcspn(folder, ":");
        if (n && snprintf(path, sizeof path, "%.*s/%s", n, folder, name) < (int)sizeof path &&
            access(path, X_OK) == 0)
            return true;
        folder += n;
        folder += *folder == ':';
    }
    return false;
}

/* gnuplot's single quotes: nothing inside is special but the quote itself, which is doubled. */
static void write_quoted(FILE *file, const char *text)
{
    fputc('\'', file);
    for (; *text; text++) {
        if (*text == '\'') fputc('\'', file);
        fputc(*text == '\n' ? ' ' : *text, file);
    }
    fputc('\'', file);
}

static void set_text(FILE *file, const char *what, const char *text)
{
    fprintf(file, "set %s ", what);
    write_quoted(file, text);
    fputs(strcmp(what, "output") == 0 ? "\n" : " noenhanced\n", file);
}

static double value_of(const series_t *series, size_t i)
{
    return series->spreads ? series->spreads[i].median : series->y[i];
}

/* A logarithmic axis shows only values above zero. */
static bool can_draw(const plot_t *plot, const series_t *series, size_t i)
{
    const double y = value_of(series, i);
    if (!isfinite(y) || (plot->log_y && y <= 0)) return false;
    return plot->bars || (isfinite(series->x[i]) && !(plot->log_x && series->x[i] <= 0));
}

static bool has_points(const plot_t *plot, size_t s)
{
    for (size_t i = 0; i < plot->series[s].count; i++)
        if (can_draw(plot, &plot->series[s], i)) return true;
    return false;
}

static double end_or(double end, double otherwise)
{
    return isfinite(end) && end > 0 ? end : otherwise;
}

/* A line a point: x, y and the ends of its error bar, which without an interval has no length. */
static void write_data(FILE *file, const plot_t *plot)
{
    for (size_t s = 0; s < plot->nseries; s++) {
        const series_t *series = &plot->series[s];
        fprintf(file, "$data%zu << FERRY_END\n", s);
        for (size_t i = 0; i < series->count; i++) {
            if (!can_draw(plot, series, i)) continue;
            const spread_t *spread = series->spreads ? &series->spreads[i] : NULL;
            const double y = value_of(series, i);
            fprintf(file, "%.9g %.9g %.9g %.9g", plot->bars ? (double)i : series->x[i], y,
                    end_or(spread ? spread->low : y, y), end_or(spread ? spread->high : y, y));
            if (plot->bars) fprintf(file, " \"%s\"", plot->bars[i]);
            fputc('\n', file);
        }
        fputs("FERRY_END\n", file);
    }
}

/* Lines with a cap at both ends; gnuplot's own error bars erase the lines below them. */
#define ERROR_BARS "using 1:3:(0):($4-$3) with vectors heads size screen 0.004,90"

static bool has_bars(const series_t *series)
{
    for (size_t i = 0; series->spreads && i < series->count; i++)
        if (isfinite(series->spreads[i].low)) return true;
    return false;
}

/* Okabe and Ito's, without black and without the yellow that is pale on white. */
static const char *const colours[PLOT_MOST_SERIES] = { "#0072B2", "#E69F00", "#009E73",
                                                       "#D55E00", "#CC79A7", "#56B4E9" };

static size_t panel_size(const plot_t *plot)
{
    return plot->per_panel ? plot->per_panel : PLOT_MOST_SERIES;
}

/* Powers of ten on each logarithmic axis. */
static void write_axes(FILE *file, const plot_t *plot)
{
    if (plot->log_x) fputs("set logscale x\nset format x '10^{%L}'\n", file);
    if (plot->log_y) fputs("set logscale y\nset format y '10^{%L}'\n", file);
}

static void write_bars(FILE *file, const plot_t *plot)
{
    fputs("set style fill solid 0.6\nset boxwidth 0.6\nset xtics noenhanced\n", file);
    if (plot->nseries && plot->series[0].count > 6) fputs("set xtics rotate by -30\n", file);
    fputs(plot->log_y ? "" : "set yrange [0:*]\n", file);
    fprintf(file, "plot $data0 using 1:2:xtic(5) with boxes linecolor rgb '%s' notitle",
            colours[0]);
    if (has_bars(&plot->series[0]))
        fputs(", $data0 " ERROR_BARS " linecolor rgb 'black' notitle", file);
    fputc('\n', file);
}

/* The series of one panel that have points; gnuplot takes an empty block for a mistake. */
static void write_lines(FILE *file, const plot_t *plot, size_t first)
{
    const char *comma = "plot ";
    for (size_t s = first; s < plot->nseries && s < first + panel_size(plot); s++) {
        const size_t style = s - first;
        if (!has_points(plot, s)) continue;
        fprintf(file,
                "%s$data%zu using 1:2 with linespoints linewidth 2 linecolor rgb '%s' "
                "pointtype %zu title ",
                comma, s, colours[style], style + 4);
        write_quoted(file, plot->series[s].name);
        comma = ", ";
        if (has_bars(&plot->series[s]))
            fprintf(file, ", $data%zu " ERROR_BARS " linecolor rgb '%s' notitle", s,
                    colours[style]);
    }
    fputc('\n', file);
}

static bool panel_has_points(const plot_t *plot, size_t first)
{
    for (size_t s = first; s < plot->nseries && s < first + panel_size(plot); s++)
        if (has_points(plot, s)) return true;
    return false;
}

static void write_title(FILE *file, const plot_t *plot)
{
    fputs("title ", file);
    write_quoted(file, plot->title);
    if (plot->subtitle) {
        fputs(".\"\\n\".", file);
        write_quoted(file, plot->subtitle);
    }
    fputs(" noenhanced\n", file);
}

static void write_panels(FILE *file, const plot_t *plot)
{
    size_t starts[PLOT_MOST_PANELS], count = 0;
    for (size_t s = 0; s < plot->nseries && count < PLOT_MOST_PANELS; s += panel_size(plot))
        if (panel_has_points(plot, s)) starts[count++] = s;
    fputs("set ", file);
    if (count > 1) fprintf(file, "multiplot layout 1,%zu ", count);
    write_title(file, plot);
    fprintf(file, "set key %s noenhanced\n", count > 1 ? "below" : "outside right top");
    for (size_t i = 0; i < count; i++) write_lines(file, plot, starts[i]);
    if (count > 1) fputs("unset multiplot\n", file);
}

static void write_script(FILE *file, const plot_t *plot, const char *path)
{
    fprintf(file,
            "set terminal svg size %d,520 dynamic background rgb 'white' font 'sans,13'\nset "
            "encoding utf8\nset grid\n",
            !plot->bars && plot->nseries > panel_size(plot) ? 1180 : 860);
    set_text(file, "output", path);
    set_text(file, "xlabel", plot->x_label);
    set_text(file, "ylabel", plot->y_label);
    write_axes(file, plot);
    write_data(file, plot);
    if (!plot->bars) {
        write_panels(file, plot);
        return;
    }
    fputs("set ", file);
    write_title(file, plot);
    write_bars(file, plot);
}

/* Does the file end as a figure does? A full disk leaves a part of it, and gnuplot exits with 0. A
 * pipe or a device is not asked. */
static bool is_whole(const char *path)
{
    char end[64] = "";
    struct stat found;
    if (stat(path, &found) == 0 && !S_ISREG(found.st_mode)) return true;
    FILE *file = fopen(path, "r");
    if (!file) return false;
    const long most = (long)sizeof end - 1;
    if (fseek(file, -most, SEEK_END)) rewind(file);
    end[fread(end, 1, sizeof end - 1, file)] = 0;
    fclose(file);
    return strstr(end, "</svg>") != NULL;
}

static fy_status_t write_numbers_instead(const char *path, const sheet_t *numbers)
{
    char csv[4096];
    size_t n = strlen(path);
    if (n > 4 && strcmp(path + n - 4, ".svg") == 0) n -= 4;
    fprintf(stderr, "ferry: no figure: gnuplot is not installed (Debian: gnuplot-nox)\n");
    if (!numbers || snprintf(csv, sizeof csv, "%.*s.csv", (int)n, path) >= (int)sizeof csv)
        return FY_STATUS_OK;
    FY_TRY(sheet_csv(numbers, csv));
    fprintf(stderr, "ferry: its numbers are in %s\n", csv);
    return FY_STATUS_OK;
}

fy_status_t plot_write(const plot_t *plot, const char *path, const sheet_t *numbers,
                       bool *out_drawn)
{
    size_t drawable = 0;
    *out_drawn = false;
    for (size_t s = 0; s < plot->nseries; s++) drawable += has_points(plot, s);
    if (!drawable) {
        fprintf(stderr, "ferry: no figure: there are no values to draw\n");
        return FY_STATUS_OK;
    }
    if (!have_program("gnuplot")) return write_numbers_instead(path, numbers);
    struct sigaction ignore = { .sa_handler = SIG_IGN }, before;
    sigaction(SIGPIPE, &ignore, &before); /* if gnuplot dies, its exit status tells */
    FILE *pipe = popen("exec gnuplot 2>/dev/null", "w");
    int exit_status = -1, error = errno;
    if (pipe) {
        write_script(pipe, plot, path);
        exit_status = pclose(pipe);
    }
    sigaction(SIGPIPE, &before, NULL);
    if (!pipe) return TOOL_FAIL(IO, "cannot start gnuplot: %s", strerror(error));
    /* -1: gnuplot exited with 0 before it had read everything */
    if (exit_status != 0 && exit_status != -1)
        return TOOL_FAIL(IO, "gnuplot could not draw %s (exit status %d)", path,
                         WIFEXITED(exit_status) ? WEXITSTATUS(exit_status) : -1);
    if (exit_status == -1 || !is_whole(path))
        return TOOL_FAIL(IO, "gnuplot did not write all of %.400s: is the disk full?", path);
    *out_drawn = true;
    return FY_STATUS_OK;
}
