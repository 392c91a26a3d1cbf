/* `stoker launch`: where the ranks' output goes, and the signals that end them. */
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "cli/cli_launch.h"
#include "host/runner/runner.h"
#include "sys/file.h"

enum { MAX_SIGNALS = 32, MAX_TEXTS = 256 };

static int wrong_streams(const stk_cli *cli, const char *name, const char *text, stk_err *err)
{
    char word[128];
    return stk_err_set(err, STK_E_USAGE,
                       "%s: '%s' is neither 0 (none), 1 (stdout), 2 (stderr) or 3 (both) for all "
                       "ranks, nor RANK:WHAT,… by local rank, like 0:3,1:2",
                       stk_cli_spelling(cli, name, word, sizeof word), text);
}

/* "3", or "0:3,1:2": which streams of each local rank. */
static int read_which(const stk_cli *cli, const char *name, unsigned char *ret_which,
                      uint32_t n_ranks, stk_err *err)
{
    const char *text = stk_text_or(stk_cli_value(cli, name), "0");
    if (strchr(text, ':') == NULL) {
        if (text[0] < '0' || text[0] > '3' || text[1] != '\0') {
            return wrong_streams(cli, name, text, err);
        }
        memset(ret_which, text[0] - '0', STK_LAUNCH_MAX_RANKS);
        return 0;
    }
    for (const char *at = text; *at != '\0';) {
        char *end;
        unsigned long rank = strtoul(at, &end, 10);
        if (end == at || *end != ':' || end[1] < '0' || end[1] > '3' ||
            (end[2] != ',' && end[2] != '\0')) {
            return wrong_streams(cli, name, text, err);
        }
        if (rank >= n_ranks) {
            char word[128];
            return stk_err_set(err, STK_E_USAGE,
                               "%s: '%s' names local rank %lu, but there are %u, from 0",
                               stk_cli_spelling(cli, name, word, sizeof word), text, rank, n_ranks);
        }
        ret_which[rank] = (unsigned char)(end[1] - '0');
        at = end + 2 + (end[2] == ',');
    }
    return 0;
}

/* --local-ranks-filter: the view leaves the other ranks out. */
static int filter_ranks(const stk_cli *cli, unsigned char *shown, stk_err *err)
{
    bool kept[STK_LAUNCH_MAX_RANKS] = {false};
    const char *text = stk_cli_value(cli, "local-ranks-filter");
    if (text == NULL || *text == '\0') {
        return 0;
    }
    for (const char *at = text; *at != '\0';) {
        char *end;
        unsigned long rank = strtoul(at, &end, 10);
        if (end == at || (*end != ',' && *end != '\0')) {
            return stk_err_set(err, STK_E_USAGE,
                               "--local-ranks-filter: '%s' is not a list of local ranks like 0,1",
                               text);
        }
        if (rank < STK_LAUNCH_MAX_RANKS) {
            kept[rank] = true;
        }
        at = end + (*end == ',');
    }
    for (uint32_t i = 0; i < STK_LAUNCH_MAX_RANKS; i++) {
        if (!kept[i]) {
            shown[i] = 0;
        }
    }
    return 0;
}

/* "apple,orange": texts between commas; a double comma stands for one. */
static int read_texts(const stk_cli *cli, const char *name, stk_arena *arena,
                      const char *const **ret_texts, stk_err *err)
{
    const char *given = stk_cli_value(cli, name);
    if (given == NULL) {
        return 0;
    }
    char *to = stk_arena_dup(arena, given);
    const char **texts = stk_arena_array(arena, MAX_TEXTS + 1, sizeof *texts);
    if (to == NULL || texts == NULL) {
        return stk_err_nomem(err);
    }
    size_t n = 0;
    texts[n] = to;
    for (const char *at = given; *at != '\0'; at++) {
        if (*at == ',' && at[1] != ',') {
            *to++ = '\0';
            if (++n >= MAX_TEXTS) {
                return stk_err_set(err, STK_E_LIMIT, "--%s: more than %d texts", name, MAX_TEXTS);
            }
            texts[n] = to;
            continue;
        }
        at += *at == ',';
        *to++ = *at;
    }
    *to = '\0';
    *ret_texts = texts;
    return 0;
}

/* torchrun writes logs to a new folder, too, if they are wanted without --log-dir. */
static int make_logs(stk_arena *arena, stk_launch_config *c, stk_err *err)
{
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/stoker-launch-XXXXXX",
                   stk_text_or(getenv("TMPDIR"), "/tmp"));
    if (mkdtemp(path) == NULL) {
        return stk_err_set(err, STK_E_SYS,
                           "no folder for logs can be made at %s: name one by "
                           "--log-dir DIR",
                           path);
    }
    fprintf(stderr, "stoker launch: the ranks' logs are in %s\n", path);
    c->dir = stk_arena_dup(arena, path);
    if (c->dir != NULL) {
        return 0;
    }
    return stk_err_nomem(err);
}

int stk_cli_launch_streams(const stk_cli *cli, stk_arena *arena, stk_launch_config *c, stk_err *err)
{
    const char *dir = stk_cli_value(cli, "log-dir");
    uint32_t n = c->ranks; /* a task's gang may have more, which are all alike */
    bool redirects = stk_cli_value(cli, "redirects") != NULL;
    bool tees = stk_cli_value(cli, "tee") != NULL;
    bool wanted = false;
    unsigned char *logged = stk_arena_array(arena, STK_LAUNCH_MAX_RANKS, 1);
    unsigned char *teed = stk_arena_array(arena, STK_LAUNCH_MAX_RANKS, 1);
    if (logged == NULL || teed == NULL) {
        return stk_err_nomem(err);
    }
    STK_TRY(read_which(cli, "redirects", logged, n, err));
    STK_TRY(read_which(cli, "tee", teed, n, err));
    for (uint32_t i = 0; i < STK_LAUNCH_MAX_RANKS; i++) {
        unsigned char both = logged[i] | teed[i];
        teed[i] |= (unsigned char)~logged[i] & STK_LAUNCH_BOTH; /* shown: all but redirected ones */
        logged[i] = both;
        wanted = wanted || both != 0;
    }
    STK_TRY(filter_ranks(cli, teed, err));
    STK_TRY(read_texts(cli, "duplicate-stdout-filters", arena, &c->copied[0], err));
    STK_TRY(read_texts(cli, "duplicate-stderr-filters", arena, &c->copied[1], err));
    c->shown = teed;
    if (redirects || tees) {
        c->logged = logged;
    }
    if (dir != NULL) {
        STK_TEXT_AUTO logs = stk_file_absolute(dir);
        c->dir = stk_arena_dup(arena, logs);
        if (c->dir != NULL) {
            return 0;
        }
        return stk_err_nomem(err);
    }
    wanted = wanted || c->copied[0] != NULL || c->copied[1] != NULL;
    if (!wanted) {
        return 0;
    }
    return make_logs(arena, c, err);
}

int stk_cli_launch_signals(const stk_cli *cli, stk_arena *arena, stk_launch_config *c, stk_err *err)
{
    c->signal_names = stk_cli_value(cli, "signals-to-handle");
    char *rest = stk_arena_dup(arena, c->signal_names);
    int *numbers = stk_arena_array(arena, MAX_SIGNALS + 1, sizeof *numbers);
    size_t n = 0;
    if (numbers == NULL || (rest == NULL && c->signal_names != NULL)) {
        return stk_err_nomem(err);
    }
    if (rest == NULL) {
        return 0;
    }
    for (char *name; (name = strsep(&rest, ",")) != NULL;) {
        int number = 1;
        while (number < 32 && strcmp(stk_runner_signal_name(number), name) != 0) {
            number++;
        }
        if (number == 32 || number == SIGKILL || n >= MAX_SIGNALS) {
            return stk_err_set(err, STK_E_USAGE,
                               "--signals-to-handle: '%s' is no signal that a program can handle, "
                               "like SIGTERM or SIGUSR1",
                               name);
        }
        numbers[n++] = number;
    }
    numbers[n] = 0;
    c->signals = numbers;
    return 0;
}
