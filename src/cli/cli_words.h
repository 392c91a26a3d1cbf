/* Words behind a Python file. `stoker run train.py --policy strict -- --epochs 3`: Stoker's options
 * are understood on either side of the file, words after "--" are the program's. In front of "--"
 * any other word is an error, unless the program is a flow: a flow has a command line of its own.
 * Private to the cli room. */
#ifndef STK_CLI_WORDS_H
#define STK_CLI_WORDS_H

#include "cli/cli_parse.h"

/* The program's source, for the functions below; NULL: it can't be read. Caller frees. */
char *stk_cli_program_text(const char *word);
/* Is the option's name (without dashes) one that this program's own command line takes? */
bool stk_cli_is_of_flow(const char *text, const char *option);
/* STK_E_USAGE for a word that is neither ours nor a flow's. Prints a note where an option of ours
 * has the name of a flow's parameter, unless `quiet`. */
int stk_cli_check_words(const stk_cli *cli, bool quiet, stk_err *err);

#endif
