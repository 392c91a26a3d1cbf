/* The options of `stoker launch`. Private to the cli room. */
#ifndef STK_CLI_LAUNCH_H
#define STK_CLI_LAUNCH_H

#include "cli/cli.h"
#include "host/launch/launch.h"

extern const stk_option stk_cli_launch_table[];
/* Adds the settings of --config-file to the options. */
int stk_cli_launch_config(const stk_cli **cli, stk_arena *arena, stk_err *err);
bool stk_cli_launch_is_foreign(const char *name); /* in src/tbl/launch_options.def */
/* Refuses what has no meaning here, with what it means (src/tbl/launch_options.def). */
int stk_cli_launch_foreign(const stk_cli *cli, stk_err *err);
/* STK_E_USAGE if `value` isn't among `values` ("a|b"; "": anything; "#": a number). `words` (or
 * NULL) says what the option means. */
int stk_cli_launch_check_value(const char *name, const char *value, const char *values,
                               const char *words, stk_err *err);
/* Reads them into `c`, and the variables that a gang's leader sets. */
int stk_cli_launch_options(const stk_cli *cli, stk_arena *arena, stk_launch_config *c,
                           stk_err *err);
int stk_cli_launch_nodes(const stk_cli *cli, stk_arena *arena, stk_launch_config *c, stk_err *err);
/* --tee, --redirects, --local-ranks-filter, --duplicate-…-filters, --log-dir. */
int stk_cli_launch_streams(const stk_cli *cli, stk_arena *arena, stk_launch_config *c,
                           stk_err *err);
int stk_cli_launch_signals(const stk_cli *cli, stk_arena *arena, stk_launch_config *c,
                           stk_err *err);
/* A time such as 5, 90s or 10m; leaves *ret_ms alone if the option isn't given. */
int stk_cli_launch_duration(const stk_cli *cli, const char *name, int64_t *ret_ms, stk_err *err);

/* --- accelerate's options (cli_launch_accelerate.c) --- */

#define STK_CLI_DS_FIELDS "config-ds-fields" /* names of what the config file says of deepspeed */

/* Whether any word means true there, but the empty one. */
bool stk_cli_launch_is_truth(const char *name);

bool stk_cli_launch_is_accelerate(const stk_cli *cli);
bool stk_cli_launch_wants_devices(const stk_cli *cli); /* its ranks are as many as devices */
void stk_cli_launch_mask(const stk_cli *cli);          /* --gpu-ids */
/* Sets the variables that accelerate sets for a world of so many ranks. */
int stk_cli_launch_accelerate(const stk_cli *cli, uint32_t world, stk_err *err);

/* --- values as Python reads and prints them (cli_launch_values.c) --- */

bool stk_cli_is_true(const char *text); /* "yes", "True", "1" … */
bool stk_cli_is_false(const char *text);
bool stk_cli_print_real(const char *text, char *buf, size_t size); /* "1.0", "0.05" */
bool stk_cli_print_whole(const char *text, char *buf, size_t size);
void stk_cli_print_case(const char *text, bool upper, char *buf, size_t size);

#endif
