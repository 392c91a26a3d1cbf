/* Parses a command line into options and positionals by the command's table. Private to the cli
 * room. */
#ifndef STK_CLI_PARSE_H
#define STK_CLI_PARSE_H

#include "cli/cli.h"

typedef struct stk_cli_given {
    const char *name;
    const char *value; /* "" for a flag */
    const char *word;  /* as it was written, up to a '=' */
    bool is_behind;    /* a Python file */
} stk_cli_given;

struct stk_cli {
    const stk_command *command;
    char **args; /* positionals, NULL-terminated */
    int n_args;
    int n_mixed;        /* of these, those between a Python file and "--" */
    char *program_text; /* of that file; or NULL */
    stk_cli_given *given;
    int n_given;
    char program[4096];
};

/* `words` follow the command's name. STK_E_USAGE for an unknown option suggests a similar one. */
int stk_cli_parse(stk_cli *cli, int n_words, char **words, stk_err *err);
void stk_cli_parse_done(stk_cli *cli);
const stk_command *stk_cli_find(const char *word);
bool stk_cli_has_option(const stk_command *command, const char *name);
/* STK_E_USAGE, with a did-you-mean. */
int stk_cli_unknown_option(const stk_command *command, const char *word, stk_err *err);

#endif
