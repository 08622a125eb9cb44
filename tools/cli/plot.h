/* Figures, drawn by gnuplot through a pipe. Without gnuplot nothing is lost: it says so and the
 * numbers go to a CSV file. Series have the colours of Okabe and Ito (Color Universal Design, 2008)
 * and a mark each; more than PLOT_MOST_SERIES are drawn in panels side by side.
 * Next: plot.c. */
#ifndef FERRY_TOOLS_PLOT_H_
#define FERRY_TOOLS_PLOT_H_

#include "tools/cli/stats.h"

enum { PLOT_MOST_SERIES = 6, PLOT_MOST_PANELS = 4 };

typedef struct series {
    const char *name;
    size_t count;
    /* points that are not finite, or have no place on a logarithmic axis, are left out */
    const double *x, *y;
    const spread_t *spreads; /* not NULL: y is their medians, low and high the ends of error bars */
} series_t;

typedef struct plot {
    const char *title, *x_label, *y_label;
    const char *subtitle; /* device, profile and version; NULL: none */
    bool log_x, log_y;
    const char *const *bars; /* not NULL: bars with these names, of the one series */
    size_t nseries;
    size_t per_panel; /* series of a panel, at most PLOT_MOST_SERIES; 0: PLOT_MOST_SERIES */
    const series_t *series;
} plot_t;

/* Draws `plot` to the SVG file `path`. If there is nothing to draw: a line on standard error and no
 * file. If there is no gnuplot: a line too, and `numbers` (may be NULL) goes to the file of that
 * name with .csv in place of .svg. *out_drawn: there is a figure.
 * gnuplot's own words are not shown. Fails: IO (gnuplot failed). */
fy_status_t plot_write(const plot_t *plot, const char *path, const sheet_t *numbers,
                       bool *out_drawn);

#endif
