/* Figures, drawn by gnuplot through a pipe. Without gnuplot nothing is lost: it says so and the numbers go to a CSV file.
 * Next: plot.c. */
#ifndef FERRY_TOOLS_PLOT_H_
#define FERRY_TOOLS_PLOT_H_

#include <stdbool.h>

#include "tools/sheet.h"

typedef struct series {
    const char *name;
    size_t count;
    const double *x, *y; /* points that are not finite are left out */
} series_t;

typedef struct plot {
    const char *title, *x_label, *y_label;
    bool log_x, log_y;
    const char *const *bars; /* not NULL: bars with these names, from the one series' y */
    size_t nseries;
    const series_t *series;
} plot_t;

/* Draws `plot` to the SVG file `path`. If there is no gnuplot: a line on standard error, and `numbers` (may be NULL) goes to the
 * file of that name with .csv in place of .svg. Fails: IO (gnuplot failed). */
fy_status_t plot_write(const plot_t *plot, const char *path, const sheet_t *numbers);

#endif
