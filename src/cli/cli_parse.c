#include "cli/cli_parse.h"

#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <unistd.h>

#include "base/text.h"
#include "base/units.h"
#include "cli/cli_words.h"

static const stk_option everywhere[] = {{"json", 0, NULL, ""}, {"help", 'h', NULL, ""}, {NULL}};

/* Accepts --log_dir for --log-dir: people and other tools write both. */
static bool is_word(const char *word, size_t n_word, const char *name, size_t len)
{
    for (size_t i = 0; i < len && n_word == len; i++) {
        if (word[i] != (name[i] == '_' ? '-' : name[i])) {
            return false;
        }
    }
    return n_word == len;
}

/* True if `name` is among other tools' names for an option. `mark` '?': only names that mean nearly
 * the same; else only names that mean the same. */
static bool is_also(const char *also, const char *name, size_t len, char mark)
{
    for (size_t n; also != NULL && *also != '\0'; also += n + (also[n] == ' ')) {
        n = strcspn(also, " ");
        size_t marked = *also == '?';
        if (marked == (mark != '\0') && is_word(also + marked, n - marked, name, len)) {
            return true;
        }
    }
    return false;
}

static const stk_option *find_in(const stk_option *table, const char *name, size_t len, char letter)
{
    for (const stk_option *o = table; o != NULL && o->name != NULL; o++) {
        if (letter != 0 ? o->letter == letter
                        : is_word(o->name, strlen(o->name), name, len) ||
                              is_also(o->also, name, len, '\0')) {
            return o;
        }
    }
    return NULL;
}

static const stk_option *find_option(const stk_command *command, const char *name, size_t len,
                                     char letter)
{
    const stk_option *o = find_in(command->options, name, len, letter);
    return o != NULL ? o : find_in(everywhere, name, len, letter);
}

bool stk_cli_has_option(const stk_command *command, const char *name)
{
    return find_option(command, name, strlen(name), 0) != NULL;
}

int stk_cli_unknown_option(const stk_command *command, const char *word, stk_err *err)
{
    const char *names[256];
    char bare[64];
    size_t n = 0;
    for (const stk_option *o = command->options; o != NULL && o->name != NULL && n < 254; o++) {
        names[n++] = o->name;
    }
    names[n++] = "json";
    names[n++] = "help";
    const char *start = word + strspn(word, "-");
    size_t m = strcspn(start, "=");
    if (m >= sizeof bare - 1) {
        m = sizeof bare - 1;
    }
    memcpy(bare, start, m);
    bare[m] = '\0';
    const char *near = stk_units_nearest(bare, names, n);
    for (const stk_option *o = command->options; o != NULL && o->name != NULL; o++) {
        near = is_also(o->also, bare, m, '?') ? o->name : near;
    }
    if (near == NULL) {
        return stk_err_set(err, STK_E_USAGE, "unknown option '%s'", word);
    }
    return stk_err_set(err, STK_E_USAGE, "unknown option '%s'; did you mean '--%s'?", word, near);
}

/* Parses the option at words[*i]; may use the next word as its value. */
static int take_option(stk_cli *cli, int n_words, char **words, int *i, stk_err *err)
{
    const char *word = words[*i];
    bool is_long = word[1] == '-';
    const char *name = is_long ? word + 2 : word + 1;
    size_t len = is_long ? strcspn(name, "=") : 1;
    const stk_option *o = find_option(cli->command, name, len, is_long ? 0 : word[1]);
    if (o == NULL || (!is_long && o->arg == NULL && word[2] != '\0')) {
        return stk_cli_unknown_option(cli->command, word, err);
    }
    const char *value = "";
    const char *rest = name + len;
    if (o->arg == NULL) {
        if (*rest != '\0') {
            return stk_err_set(err, STK_E_USAGE, "option --%s takes no value", o->name);
        }
    } else if (*rest != '\0') {
        value = rest + (is_long || *rest == '=' ? 1 : 0);
    } else if (*i + 1 < n_words) {
        value = words[++*i];
    } else {
        return stk_err_set(err, STK_E_USAGE, "option --%s needs a value: --%s %s", o->name, o->name,
                           o->arg);
    }
    cli->given[cli->n_given++] = (stk_cli_given){o->name, value, word};
    return 0;
}

/* An option that this command takes here, or that nobody does. */
static bool is_ours(const stk_cli *cli, stk_words words_are, const char *word)
{
    if (word[0] != '-' || word[1] == '\0') {
        return false;
    }
    bool is_long = word[1] == '-';
    const char *name = word + 2;
    const stk_option *o =
        find_option(cli->command, name, strcspn(name, "="), is_long ? 0 : word[1]);
    return words_are == STK_WORDS_OURS ||
           (o != NULL && !(is_long && stk_cli_is_of_flow(cli->program_text, o->name)));
}

/* Whose the words behind the one that was just added are. */
static stk_words words_behind(stk_cli *cli, stk_words words_are)
{
    if (cli->n_args > 1 || cli->command->words_behind == NULL) {
        return words_are;
    }
    words_are = cli->command->words_behind(cli->args[0]);
    if (words_are == STK_WORDS_MIXED) {
        cli->program_text = stk_cli_program_text(cli->args[0]);
    }
    return words_are;
}

int stk_cli_parse(stk_cli *cli, int n_words, char **words, stk_err *err)
{
    ssize_t n = readlink("/proc/self/exe", cli->program, sizeof cli->program - 1);
    cli->program[MAX(n, 0)] = '\0';
    cli->args = calloc((size_t)n_words + 1, sizeof *cli->args);
    cli->given = calloc((size_t)n_words + 1, sizeof *cli->given);
    if (cli->args == NULL || cli->given == NULL) {
        return stk_err_nomem(err);
    }
    stk_words words_are = STK_WORDS_OURS;
    for (int i = 0; i < n_words; i++) {
        int n_given = cli->n_given;
        if (words_are == STK_WORDS_THEIRS) {
            cli->args[cli->n_args++] = words[i];
        } else if (strcmp(words[i], "--") == 0) {
            words_are = STK_WORDS_THEIRS;
        } else if (is_ours(cli, words_are, words[i])) {
            STK_TRY(take_option(cli, n_words, words, &i, err));
            cli->given[n_given].is_behind = words_are == STK_WORDS_MIXED;
        } else {
            cli->args[cli->n_args++] = words[i];
            cli->n_mixed += words_are == STK_WORDS_MIXED;
            words_are = words_behind(cli, words_are);
        }
    }
    return 0;
}

void stk_cli_parse_done(stk_cli *cli)
{
    free(cli->args);
    free(cli->given);
    free(cli->program_text);
}
