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

/* A logarithmic axis shows only values above zero. */
static bool can_draw(const plot_t *plot, const series_t *series, size_t i)
{
    if (!isfinite(series->y[i]) || (plot->log_y && series->y[i] <= 0)) return false;
    return plot->bars || (isfinite(series->x[i]) && !(plot->log_x && series->x[i] <= 0));
}

static bool has_points(const plot_t *plot, size_t s)
{
    for (size_t i = 0; i < plot->series[s].count; i++)
        if (can_draw(plot, &plot->series[s], i)) return true;
    return false;
}

static void write_data(FILE *file, const plot_t *plot)
{
    for (size_t s = 0; s < plot->nseries; s++) {
        const series_t *series = &plot->series[s];
        fprintf(file, "$data%zu << FERRY_END\n", s);
        for (size_t i = 0; i < series->count; i++) {
            if (!can_draw(plot, series, i)) continue;
            if (plot->bars)
                fprintf(file, "%zu %.9g \"%s\"\n", i, series->y[i], plot->bars[i]);
            else
                fprintf(file, "%.9g %.9g\n", series->x[i], series->y[i]);
        }
        fputs("FERRY_END\n", file);
    }
}

static void write_script(FILE *file, const plot_t *plot, const char *path)
{
    fputs("set terminal svg size 860,520 dynamic background rgb 'white' font 'sans,13'\nset "
          "encoding utf8\nset grid\n",
          file);
    set_text(file, "output", path);
    set_text(file, "title", plot->title);
    set_text(file, "xlabel", plot->x_label);
    set_text(file, "ylabel", plot->y_label);
    if (plot->log_x) fputs("set logscale x\n", file);
    if (plot->log_y) fputs("set logscale y\n", file);
    write_data(file, plot);
    if (plot->bars) {
        fputs("set style fill solid 0.6\nset boxwidth 0.6\nset xtics noenhanced\n", file);
        fputs(plot->log_y ? "" : "set yrange [0:*]\n", file);
        fputs("plot $data0 using 1:2:xtic(3) with boxes notitle\n", file);
        return;
    }
    fputs("set key outside right top noenhanced\nplot ", file);
    const char *comma = "";
    for (size_t s = 0; s < plot->nseries; s++) {
        if (!has_points(plot, s)) continue; /* gnuplot takes an empty block for a mistake */
        fprintf(file, "%s$data%zu using 1:2 with linespoints linewidth 2 title ", comma, s);
        write_quoted(file, plot->series[s].name);
        comma = ", ";
    }
    fputc('\n', file);
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
    if (!pipe)
        return fy_error_set(FY_STATUS_IO, __FILE__, __LINE__, "cannot start gnuplot: %s",
                            strerror(error));
    /* -1: gnuplot exited with 0 before it had read everything */
    if (exit_status != 0 && exit_status != -1)
        return fy_error_set(FY_STATUS_IO, __FILE__, __LINE__,
                            "gnuplot could not draw %s (exit status %d)", path,
                            WIFEXITED(exit_status) ? WEXITSTATUS(exit_status) : -1);
    if (exit_status == -1 || !is_whole(path))
        return fy_error_set(FY_STATUS_IO, __FILE__, __LINE__,
                            "gnuplot did not write all of %.400s: is the disk full?", path);
    *out_drawn = true;
    return FY_STATUS_OK;
}
