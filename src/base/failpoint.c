#include "base/failpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N_RULES = 16 };

typedef enum { KILL, EXIT, STOP, LOG, ERR, HOLD } action;

static const struct {
    const char *word;
    action action;
    int sys;
} actions[] = {{"kill", KILL, 0}, {"exit", EXIT, 0},       {"stop", STOP, 0},
               {"log", LOG, 0},   {"enospc", ERR, ENOSPC}, {"enomem", ERR, ENOMEM},
               {"eio", ERR, EIO}, {"emfile", ERR, EMFILE}, {"eacces", ERR, EACCES},
               {"hold", HOLD, 0}};

static const struct {
    const char *name;
    int can_err;
} points[] = {
#define X(name, can_err, text) {name, can_err},
#include "tbl/failpoints.def"
#undef X
};

typedef struct rule {
    char name[96]; /* "*": every point except those of sys */
    unsigned long n;
    int onwards;
    action action;
    int sys;
    atomic_ulong passes;
} rule;

static rule rules[N_RULES];
static int n_rules;
static atomic_bool told_held; /* the ".reached" file was made */
int stk_failpoint_armed;

static _Noreturn void refuse_failpoint(const char *text, const char *why)
{
    (void)fprintf(stderr, "STOKER_FAILPOINTS: '%s': %s (src/tbl/failpoints.def lists them)\n", text,
                  why);
    _exit(2);
}

/* Accepts "sys.open/store_tree.c/346" too: that point at one place of the source. */
static int point_of(const char *name)
{
    size_t n = strcspn(name, "/");
    for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
        if (strncmp(points[i].name, name, n) == 0 && points[i].name[n] == '\0') {
            return (int)i;
        }
    }
    return -1;
}

static void add_rule(const char *text)
{
    char word[16];
    char number[24];
    if (n_rules == N_RULES) {
        refuse_failpoint(text, "too many");
    }
    rule *r = &rules[n_rules];
    if (sscanf(text, "%95[^:]:%23[^:]:%15s", r->name, number, word) != 3) {
        refuse_failpoint(text, "not name:N:action");
    }
    int i = point_of(r->name);
    if (i < 0 && strcmp(r->name, "*") != 0) {
        refuse_failpoint(text, "no such failpoint");
    }
    char *end;
    r->n = strtoul(number, &end, 10);
    r->onwards = *end == '+';
    if (end == number || end[r->onwards] != '\0' || r->n == 0) {
        refuse_failpoint(text, "N must be a number from 1, or N+");
    }
    for (size_t k = 0; k < sizeof actions / sizeof actions[0]; k++) {
        if (strcmp(actions[k].word, word) == 0) {
            if (actions[k].action == ERR && i >= 0 && !points[i].can_err) {
                refuse_failpoint(text, "this failpoint can't fail, only end the process");
            }
            r->action = actions[k].action;
            r->sys = actions[k].sys;
            atomic_store(&r->passes, 0);
            n_rules++;
            return;
        }
    }
    refuse_failpoint(text, "no such action");
}

void stk_failpoint_reload(void)
{
    n_rules = 0;
    stk_failpoint_armed = 0;
    const char *env = getenv("STOKER_FAILPOINTS");
    if (env == NULL || env[0] == '\0') {
        return;
    }
    char text[160];
    while (*env != '\0') {
        size_t n = strcspn(env, ",");
        (void)snprintf(text, sizeof text, "%.*s", (int)n, env);
        add_rule(text);
        env += n + (env[n] == ',');
    }
    stk_failpoint_armed = 1;
}

/* Runs before main, so that the macro need not check whether the environment was read. */
__attribute__((constructor)) static void read_environment(void)
{
    stk_failpoint_reload();
}

int stk_failpoint_pass(const char *name)
{
    return stk_failpoint_pass_at(name, "", 0);
}

int stk_failpoint_pass_at(const char *name, const char *file, int line)
{
    char at[96];
    const char *slash = strrchr(file, '/');
    (void)snprintf(at, sizeof at, "%s/%s/%d", name, slash != NULL ? slash + 1 : file, line);
    if (point_of(name) < 0) {
        refuse_failpoint(name, "a point in the code that the list lacks");
    }
    int sys = 0;
    for (int i = 0; i < n_rules; i++) {
        rule *r = &rules[i];
        bool is_any = strcmp(r->name, "*") == 0 && strncmp(name, "sys.", 4) != 0;
        if (!is_any && strcmp(r->name, name) != 0 && strcmp(r->name, at) != 0) {
            continue;
        }
        unsigned long pass = atomic_fetch_add(&r->passes, 1) + 1;
        if (pass != r->n && !(r->onwards && pass > r->n)) {
            continue;
        }
        switch (r->action) {
        case KILL:
            (void)kill(getpid(), SIGKILL);
            break;
        case EXIT:
            _exit(70);
        case STOP:
            (void)raise(SIGSTOP);
            break;
        case LOG:
            (void)dprintf(STDERR_FILENO, "failpoint %s %lu\n", line > 0 ? at : name, pass);
            break;
        case ERR:
            sys = r->sys;
            break;
        case HOLD: /* the caller polls stk_failpoint_is_held */
            break;
        }
    }
    return sys;
}

bool stk_failpoint_is_held(const char *name)
{
    const char *file = getenv("STOKER_FAILPOINT_HOLD");
    bool is_armed = false;
    for (int i = 0; i < n_rules; i++) {
        is_armed = is_armed || (rules[i].action == HOLD && strcmp(rules[i].name, name) == 0);
    }
    if (!is_armed || file == NULL || access(file, F_OK) != 0) {
        return false;
    }
    if (!atomic_exchange(&told_held, true)) {
        char path[4096];
        (void)snprintf(path, sizeof path, "%s.reached", file);
        int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
        if (fd >= 0) {
            (void)close(fd);
        }
    }
    return true;
}
