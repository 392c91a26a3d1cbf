#!/bin/sh
# Points on a line with a known slope and repeatable noise, as "x,y" lines.
set -eu
awk -v n="$STOKER_PARAM_n_points" -v slope="$STOKER_PARAM_slope" 'BEGIN {
    srand(7)
    for (i = 0; i < n; i++) {
        x = i / n
        printf "%.6f,%.6f\n", x, 1 + slope * x + (rand() - 0.5) / 10
    }
}' >"$STOKER_OUTPUT/table"
