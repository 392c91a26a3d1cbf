#include "cli/cli_parse.h"

#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <unistd.h>

#include "base/text.h"
#include "base/units.h"

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

static int unknown(const stk_command *command, const char *word, size_t len, stk_err *err)
{
    const char *names[64];
    char bare[64];
    size_t n = 0;
    for (const stk_option *o = command->options; o != NULL && o->name != NULL && n < 62; o++) {
        names[n++] = o->name;
    }
    names[n++] = "json";
    names[n++] = "help";
    (void)len;
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
        return unknown(cli->command, word, len, err);
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

int stk_cli_parse(stk_cli *cli, int n_words, char **words, stk_err *err)
{
    ssize_t n = readlink("/proc/self/exe", cli->program, sizeof cli->program - 1);
    cli->program[MAX(n, 0)] = '\0';
    cli->args = calloc((size_t)n_words + 1, sizeof *cli->args);
    cli->given = calloc((size_t)n_words + 1, sizeof *cli->given);
    if (cli->args == NULL || cli->given == NULL) {
        return stk_err_nomem(err);
    }
    bool only_args = false;
    for (int i = 0; i < n_words; i++) {
        if (!only_args && strcmp(words[i], "--") == 0) {
            only_args = true;
        } else if (!only_args && words[i][0] == '-' && words[i][1] != '\0') {
            if (take_option(cli, n_words, words, &i, err) < 0) {
                return err->code;
            }
        } else {
            cli->args[cli->n_args++] = words[i];
            only_args = only_args || (cli->n_args == 1 && cli->command->stop_at != NULL &&
                                      cli->command->stop_at(words[i]));
        }
    }
    return 0;
}

void stk_cli_parse_done(stk_cli *cli)
{
    free(cli->args);
    free(cli->given);
}
