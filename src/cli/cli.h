/* cli: one command a file, one table of options a command; help, man pages and completion come from
 * these tables.
 *
 * A command's run function returns the process's exit status (0 ok, 1 the run failed, 2 wrong
 * usage, 3 environment) or an error, which is printed for it. Answers go to stdout, everything else
 * to stderr. With --json, errors are JSON on stdout as well:
 * {"error": {"class": "spec", "text": "…", "hint": "…", "file": "…", "line": 7}}.
 */
#ifndef STK_CLI_H
#define STK_CLI_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "store/store.h"

typedef struct stk_option {
    const char *name; /* without the dashes; NULL ends a table */
    char letter;      /* short form, or 0 */
    const char *arg;  /* name of its argument in the help, or NULL for a flag */
    const char *help; /* one line */
    bool many;        /* may be given several times */
    /* Other tools' words for it, separated by spaces, or NULL; one after a '?' means almost the
     * same, and is answered by naming ours. */
    const char *also;
} stk_option;

typedef struct stk_cli stk_cli;

typedef struct stk_command {
    const char *name;
    const char *summary; /* one line, for `stoker help` */
    const char *usage;   /* "[options] RUN" after "stoker show " */
    const char *text; /* paragraphs for --help and the man page; plain text, blank line between; may
                         be NULL */
    const stk_option *options; /* --help and --json are understood everywhere and not listed here */
    /* Does what follows this first positional belong to the user's program? NULL: no. */
    bool (*stop_at)(const char *word);
    bool hidden;
    int max_args; /* positionals; -1: it looks itself how many there are */
    /* Exit status or error. `out` is printed once it has succeeded, with an end of line. */
    int (*run)(const stk_cli *cli, stk_buf *out, stk_err *err);
} stk_command;

#define X(word) extern const stk_command stk_cmd_##word;
#include "tbl/commands.def"
#undef X
extern const stk_command *const stk_commands[]; /* NULL-terminated, display order */

/* Positional arguments. */
int stk_cli_n_args(const stk_cli *cli);
const char *stk_cli_arg(const stk_cli *cli, int i); /* NULL beyond the last */
char **stk_cli_args(const stk_cli *cli);            /* NULL-terminated */
/* For stop_at: all that follows the first word is its own. */
bool stk_cli_any_word(const char *word);
/* Options by name (as in the table). */
bool stk_cli_flag(const stk_cli *cli, const char *name);
const char *stk_cli_value(const stk_cli *cli, const char *name); /* the last one given, or NULL */
const char *stk_cli_value_at(const stk_cli *cli, const char *name, int i);
/* A number option in [min, max]; 0 or STK_E_USAGE. Leaves *ret alone when the option isn't there.
 */
int stk_cli_number(const stk_cli *cli, const char *name, int64_t min, int64_t max, int64_t *ret,
                   stk_err *err);
/* The option as it was written ("-n, --ranks", "--nproc_per_node (--ranks)"), for messages. */
const char *stk_cli_spelling(const stk_cli *cli, const char *name, char *buf, size_t size);
bool stk_cli_json(const stk_cli *cli);
bool stk_cli_colour(int fd);                     /* terminal, NO_COLOR, TERM=dumb, CLICOLOR_FORCE */
const char *stk_cli_program(const stk_cli *cli); /* absolute path of this binary */
/* Prints the error (see above) and returns its exit status. */
int stk_cli_fail(const stk_cli *cli, const stk_err *err);
/* STK_E_USAGE, with the hint where the command is explained. */
int stk_cli_usage(const stk_cli *cli, stk_err *err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Too many positionals: STK_E_USAGE. */
int stk_cli_at_most(const stk_cli *cli, int n_args, stk_err *err);
/* Opens the store of the current directory (STK_STORE_… flags). */
int stk_cli_store(int flags, stk_store **ret_store, stk_err *err);
/* Prints `stoker CMD --help` to stdout. */
void stk_cli_print_help(const stk_command *command);

#endif
