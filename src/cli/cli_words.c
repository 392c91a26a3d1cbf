/* Words behind a Python file: which are Stoker's, which the program's. */
#include "cli/cli_words.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/text.h"
#include "cli/cli_run.h"
#include "sys/file.h"

stk_words stk_cli_words_of_file(const char *word)
{
    return stk_cli_is_python(word) ? STK_WORDS_MIXED : STK_WORDS_OURS;
}

stk_words stk_cli_words_theirs(const char *word)
{
    (void)word;
    return STK_WORDS_THEIRS;
}

char *stk_cli_program_text(const char *word)
{
    const char *colon = strstr(word, ".py:");
    STK_TEXT_AUTO path = colon == NULL ? strdup(word) : strndup(word, (size_t)(colon - word) + 3);
    char *text = NULL;
    size_t len = 0;
    if (path != NULL) {
        (void)stk_file_read(path, STK_LIMIT_SPEC_BYTES, &text, &len, NULL);
    }
    return text;
}

static bool is_flow(const char *text)
{
    static const char *const marks[] = {"FlowSpec", "import metaflow", "from metaflow",
                                        "stoker.flow"};
    for (size_t i = 0; text != NULL && i < sizeof marks / sizeof *marks; i++) {
        if (strstr(text, marks[i]) != NULL) {
            return true;
        }
    }
    return false;
}

bool stk_cli_is_of_flow(const char *text, const char *option)
{
    /* Options of a flow's `run` that mean what ours mean; a flow's --help lists its parameters. */
    static const char *const same[] = {"with", "max-workers", "policy", "help"};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        if (strcmp(option, same[i]) == 0) {
            return is_flow(text);
        }
    }
    return false;
}

/* Does a flow define this parameter: Parameter("max_workers", …)? */
static bool has_parameter(const char *text, const char *option)
{
    static const char mark[] = "Parameter(";
    for (const char *at = text; (at = strstr(at, mark)) != NULL;) {
        at += sizeof mark - 1;
        at += strspn(at, " \t\r\n\"'");
        size_t n = strcspn(at, "\"'");
        bool is_same = n == strlen(option);
        for (size_t i = 0; is_same && i < n; i++) {
            is_same = at[i] == option[i] || (at[i] == '_' && option[i] == '-');
        }
        if (is_same) {
            return true;
        }
    }
    return false;
}

static void note_clashes(const stk_cli *cli)
{
    const char *file = cli->args[0];
    for (int i = 0; i < cli->n_given; i++) {
        const stk_cli_given *given = &cli->given[i];
        if (given->is_behind && has_parameter(cli->program_text, given->name)) {
            fprintf(stderr,
                    "stoker: %s is Stoker's option here; the flow's own parameter goes after "
                    "'--': stoker %s %s -- %s …\n",
                    given->word, cli->command->name, file, given->word);
        }
    }
}

int stk_cli_check_words(const stk_cli *cli, bool quiet, stk_err *err)
{
    const char *word = cli->args[1], *command = cli->command->name;
    if (is_flow(cli->program_text) && !quiet) {
        note_clashes(cli);
    }
    if (cli->n_mixed == 0 || cli->program_text == NULL || is_flow(cli->program_text)) {
        return 0; /* without a text there is no such file, which is reported later */
    }
    const char *file = cli->args[0];
    const char *name = strrchr(file, '/') == NULL ? file : strrchr(file, '/') + 1;
    if (word[0] == '-') {
        (void)stk_cli_unknown_option(cli->command, word, err);
    } else if (strchr(word, '=') != NULL && stk_cli_has_option(cli->command, "param")) {
        stk_err_set(err, STK_E_USAGE,
                    "'%s' stands behind %s and is no option: a pipeline's parameter is set by "
                    "'--param %s'",
                    word, name, word);
    } else {
        stk_err_set(err, STK_E_USAGE, "'%s' stands behind %s and is no option of 'stoker %s'", word,
                    name, command);
    }
    stk_err_hint(err, "words that %s itself reads go after '--': stoker %s %s -- %s", name, command,
                 file, word);
    return err->code;
}
