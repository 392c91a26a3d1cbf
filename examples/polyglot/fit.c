/* Least squares of y = a + b·x over a CSV of points: one pass, sums only. */
#include <stdio.h>
#include <stoker/step.h>

int main(void)
{
    FILE *table = fopen(stk_step_input("table"), "r");
    if (table == NULL) {
        return stk_step_fail("input 'table' can't be opened");
    }
    double n = 0, sx = 0, sy = 0, sxx = 0, sxy = 0, x, y;
    while (fscanf(table, "%lf,%lf", &x, &y) == 2) {
        n++;
        sx += x;
        sy += y;
        sxx += x * x;
        sxy += x * y;
    }
    fclose(table);
    double spread = n * sxx - sx * sx;
    if (n < 2 || spread <= 0) {
        return stk_step_fail("input 'table' needs at least two points with different x");
    }
    double b = (n * sxy - sx * sy) / spread;
    double a = (sy - b * sx) / n;

    FILE *line = fopen(stk_step_output("line"), "w");
    if (line == NULL || fprintf(line, "{\"a\": %.9g, \"b\": %.9g}\n", a, b) < 0 ||
        fclose(line) != 0) {
        return stk_step_fail("output 'line' can't be written");
    }
    stk_step_log_number("points", n);
    stk_step_log_number("slope", b);
    return stk_step_done();
}
