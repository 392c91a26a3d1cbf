/* cli: one file per command, with one table of its options. Help, man pages and completion are made
 * from these tables.
 *
 * A command's run function returns the process's exit status (0 ok, 1 the run failed, 2 wrong
 * usage, 3 environment) or an error, which the caller prints. Answers go to stdout, everything else
 * to stderr. With --json, errors are JSON on stdout as well: {"error": {"class": "spec", "text":
 * "…", "hint": "…", "file": "…", "line": 7}}.
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
    /* Other tools' names for it, separated by spaces, or NULL. A name after '?' means nearly the
     * same: it isn't accepted, but the error suggests ours. */
    const char *also;
    bool hidden; /* for our own programs: help, manual pages and completion leave it out */
} stk_option;

typedef struct stk_cli stk_cli;

typedef enum stk_words {
    STK_WORDS_OURS,
    STK_WORDS_MIXED, /* options of ours; other words, and all after "--", are the program's */
    STK_WORDS_THEIRS
} stk_words;

typedef struct stk_command {
    const char *name;
    const char *summary; /* one line, for `stoker help` */
    const char *usage;   /* "[options] RUN" after "stoker show " */
    const char *text; /* paragraphs for --help and the man page; plain text, blank line between; may
                         be NULL */
    const stk_option *options; /* every command also has --help and --json */
    /* Whose words follow this first positional? NULL: ours. */
    stk_words (*words_behind)(const char *word);
    bool hidden;
    int max_args; /* positionals; -1: `run` checks them itself */
    /* Returns an exit status or an error. The caller prints `out`, and ends its last line, if there
     * was no error. */
    int (*run)(const stk_cli *cli, stk_buf *out, stk_err *err);
} stk_command;

#define X(group, word) extern const stk_command stk_cmd_##word;
#include "tbl/commands.def"
#undef X
extern const stk_command *const stk_commands[]; /* NULL-terminated, display order */
extern const char *const stk_command_groups[];  /* of each of these */

/* Positional arguments. */
int stk_cli_n_args(const stk_cli *cli);
const char *stk_cli_arg(const stk_cli *cli, int i); /* NULL beyond the last */
char **stk_cli_args(const stk_cli *cli);            /* NULL-terminated */
/* For words_behind: of a Python file mixed words, of anything else ours; always theirs. */
stk_words stk_cli_words_of_file(const char *word);
stk_words stk_cli_words_theirs(const char *word);
/* Options by their name in the table. */
bool stk_cli_flag(const stk_cli *cli, const char *name);
const char *stk_cli_value(const stk_cli *cli, const char *name); /* the last one given, or NULL */
const char *stk_cli_value_at(const stk_cli *cli, const char *name, int i);
/* Reads a number in [min, max]; 0 or STK_E_USAGE. Leaves *ret alone if the option isn't given. */
int stk_cli_number(const stk_cli *cli, const char *name, int64_t min, int64_t max, int64_t *ret,
                   stk_err *err);
/* The option as the user wrote it, for messages: "-n, --ranks", "--nproc_per_node (--ranks)". */
const char *stk_cli_spelling(const stk_cli *cli, const char *name, char *buf, size_t size);
bool stk_cli_json(const stk_cli *cli);
bool stk_cli_colour(int fd); /* by terminal, NO_COLOR, TERM=dumb, CLICOLOR_FORCE */
const char *stk_cli_program(const stk_cli *cli); /* absolute path of this binary */
/* Prints the error (see above) and returns its exit status. */
int stk_cli_fail(const stk_cli *cli, const stk_err *err);
/* Sets STK_E_USAGE with a hint that names the command's help. */
int stk_cli_usage(const stk_cli *cli, stk_err *err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* STK_E_USAGE if there are more positionals than `n_args`. */
int stk_cli_at_most(const stk_cli *cli, int n_args, stk_err *err);
/* Opens the store that belongs to the current directory. flags: STK_STORE_…. */
int stk_cli_store(int flags, stk_store **ret_store, stk_err *err);
/* Prints `stoker CMD --help` to stdout. */
void stk_cli_print_help(const stk_command *command);

#endif
