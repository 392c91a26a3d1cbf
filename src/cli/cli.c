#include "cli/cli.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/text.h"
#include "cli/cli_parse.h"
#include "sys/file.h"

const stk_command *const stk_commands[] = {
#define X(group, word) &stk_cmd_##word,
#include "tbl/commands.def"
#undef X
    NULL};

const char *const stk_command_groups[] = {
#define X(group, word) #group,
#include "tbl/commands.def"
#undef X
    NULL};

int stk_cli_n_args(const stk_cli *cli)
{
    return cli->n_args;
}

const char *stk_cli_arg(const stk_cli *cli, int i)
{
    return i < cli->n_args ? cli->args[i] : NULL;
}

char **stk_cli_args(const stk_cli *cli)
{
    return cli->args;
}

const char *stk_cli_value_at(const stk_cli *cli, const char *name, int i)
{
    for (int k = 0; k < cli->n_given; k++) {
        if (strcmp(cli->given[k].name, name) == 0 && i-- == 0) {
            return cli->given[k].value;
        }
    }
    return NULL;
}

const char *stk_cli_value(const stk_cli *cli, const char *name)
{
    const char *value = NULL;
    for (int k = 0; k < cli->n_given; k++) {
        if (strcmp(cli->given[k].name, name) == 0) {
            value = cli->given[k].value;
        }
    }
    return value;
}

bool stk_cli_flag(const stk_cli *cli, const char *name)
{
    return stk_cli_value(cli, name) != NULL;
}

const char *stk_cli_spelling(const stk_cli *cli, const char *name, char *buf, size_t size)
{
    char letter = '\0'; /* many users know an option only by its letter */
    for (const stk_option *o = cli->command->options; o != NULL && o->name != NULL; o++) {
        if (strcmp(o->name, name) == 0) {
            letter = o->letter;
        }
    }
    const char *word = NULL;
    for (int i = 0; i < cli->n_given; i++) {
        if (strcmp(cli->given[i].name, name) == 0) {
            word = cli->given[i].word;
        }
    }
    size_t n = word == NULL ? 0 : strcspn(word, "=");
    bool same = n < 2 || word[1] != '-' || n - 2 == strlen(name);
    for (size_t i = 2; same && i < n && word[1] == '-'; i++) {
        same = word[i] == name[i - 2] || (word[i] == '_' && name[i - 2] == '-');
    }
    if (!same) {
        (void)snprintf(buf, size, "%.*s (--%s)", (int)n, word, name);
    } else if (letter != '\0') {
        (void)snprintf(buf, size, "-%c, --%s", letter, name);
    } else {
        (void)snprintf(buf, size, "--%s", name);
    }
    return buf;
}

int stk_cli_number(const stk_cli *cli, const char *name, int64_t min, int64_t max, int64_t *ret,
                   stk_err *err)
{
    const char *text = stk_cli_value(cli, name);
    if (text == NULL) {
        return 0;
    }
    char *end;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || number < min || number > max) {
        char spelling[128];
        return stk_err_set(err, STK_E_USAGE, "%s: '%s' is not a whole number from %lld to %lld",
                           stk_cli_spelling(cli, name, spelling, sizeof spelling), text,
                           (long long)min, (long long)max);
    }
    *ret = number;
    return 0;
}

bool stk_cli_json(const stk_cli *cli)
{
    return stk_cli_flag(cli, "json");
}

bool stk_cli_colour(int fd)
{
    const char *no = getenv("NO_COLOR");
    const char *force = getenv("CLICOLOR_FORCE");
    const char *term = getenv("TERM");
    if (no != NULL && *no != '\0') {
        return false;
    }
    if (force != NULL && *force != '\0' && strcmp(force, "0") != 0) {
        return true;
    }
    return isatty(fd) && term != NULL && strcmp(term, "dumb") != 0;
}

const char *stk_cli_program(const stk_cli *cli)
{
    return cli->program;
}

int stk_cli_fail(const stk_cli *cli, const stk_err *err)
{
    char text[1400];
    if (cli != NULL && stk_cli_json(cli)) {
        STK_BUF_AUTO out = STK_BUF_INIT(1u << 16);
        stk_json_open(&out, NULL, '{');
        stk_json_open(&out, "error", '{');
        stk_json_put_text(&out, "class", stk_err_word(err->code));
        stk_json_put_text(&out, "text", err->text);
        stk_json_put_text(&out, "hint", err->hint);
        if (err->file[0] != '\0') {
            stk_json_put_text(&out, "file", err->file);
            stk_json_put_whole(&out, "line", err->line);
        }
        stk_json_close(&out, '}');
        stk_json_close(&out, '}');
        puts(stk_text_or(out.data, "{}"));
    }
    fprintf(stderr, "stoker: %s\n", stk_err_format(err, text, (int)sizeof text));
    return stk_err_exit_status(err->code);
}

int stk_cli_usage(const stk_cli *cli, stk_err *err, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    stk_err_set(err, STK_E_USAGE, "%s", text);
    if (cli != NULL) {
        stk_err_hint(err, "see 'stoker %s --help'", cli->command->name);
    } else {
        stk_err_hint(err, "see 'stoker help'");
    }
    return STK_E_USAGE;
}

int stk_cli_at_most(const stk_cli *cli, int n_args, stk_err *err)
{
    if (cli->n_args <= n_args) {
        return 0;
    }
    return stk_cli_usage(cli, err, "'%s' is one argument too many", cli->args[n_args]);
}

int stk_cli_store(int flags, stk_store **ret_store, stk_err *err)
{
    STK_TEXT_AUTO path = NULL;
    STK_TRY(stk_store_find(".", flags, &path, err));
    return stk_store_open(path, flags, ret_store, err);
}

const stk_command *stk_cli_find(const char *word)
{
    for (size_t i = 0; stk_commands[i] != NULL; i++) {
        if (strcmp(stk_commands[i]->name, word) == 0) {
            return stk_commands[i];
        }
    }
    return NULL;
}
