/* `stoker stack check`: Slurm's commands, its controller, the partition, accounts and GPUs that the
 * stack names, and whether a job like its jobs could start. */
#include <stdio.h>
#include <string.h>

#include "away/slurm/slurm_private.h"
#include "base/text.h"

typedef struct checker {
    const stk_driver_config *config;
    stk_slurm_options options;
    stk_arena *arena;
    void (*say)(void *arg, bool is_good, const char *text);
    void *arg;
    stk_err *err;
    int rc;
} checker;

static void tell(checker *c, bool is_good, const char *text)
{
    c->say(c->arg, is_good, stk_text_or(text, "out of memory"));
    if (!is_good && c->rc == 0) { /* the first failure is the error */
        c->rc = stk_err_set(c->err, STK_E_ENV, "%s", stk_text_or(text, "out of memory"));
    }
}

static void tell_error(checker *c, const stk_err *why)
{
    char text[1400];
    tell(c, false, stk_arena_dup(c->arena, stk_err_format(why, text, (int)sizeof text)));
}

/* Its answer on one line; NULL: it failed, which is told. */
static const char *ask_slurm(checker *c, const char *const *argv)
{
    const char *out = NULL;
    stk_err why = {0};
    if (stk_slurm_call(argv, NULL, NULL, c->arena, &out, &why) < 0) {
        tell_error(c, &why);
        return NULL;
    }
    char *text = stk_arena_dup(c->arena, out);
    for (char *end = text; end != NULL && (end = strchr(end, '\n')) != NULL;) {
        *end = end[1] == '\0' ? '\0' : ' ';
    }
    return text;
}

static bool check_controller(checker *c)
{
    static const char *const version[] = {"sbatch", "--version", NULL};
    static const char *const ping[] = {"scontrol", "ping", NULL};
    const char *said = ask_slurm(c, version);
    if (said == NULL) {
        return false;
    }
    const char *up = ask_slurm(c, ping);
    if (up != NULL && strstr(up, "UP") == NULL) {
        tell(c, false, stk_arena_printf(c->arena, "Slurm's controller is away: %s", up));
        return false;
    }
    if (up != NULL) {
        tell(c, true, stk_arena_printf(c->arena, "%s: %s", said, up));
    }
    return up != NULL;
}

static void check_partition(checker *c)
{
    const char *name = stk_slurm_text(&c->options, "partition");
    const char *const all[] = {"sinfo", "--noheader", "-o", "%P %a %D nodes %G;", NULL};
    const char *const one[] = {"sinfo",       "--noheader", "-o", "%P %a %D nodes %G;",
                               "--partition", name,         NULL};
    const char *said = ask_slurm(c, name == NULL ? all : one);
    if (said != NULL && name != NULL && *said == '\0') {
        tell(c, false, stk_arena_printf(c->arena, "Slurm has no partition '%s'", name));
    } else if (said != NULL) {
        tell(c, true, stk_arena_printf(c->arena, "partitions: %s", said));
    }
}

/* Whether Slurm would take a job of the stack's options: --test-only submits nothing. */
static void check_job(checker *c)
{
    static const char *const argv[] = {"sbatch", "--test-only", NULL};
    static const char *const program[] = {"true", NULL}, *const none[] = {NULL};
    stk_resources nothing = STK_RESOURCES_UNSET;
    const stk_remote_job job = {.run = "check",
                                .pipeline = "check",
                                .step = "check",
                                .attempt = 1,
                                .name = "s-check",
                                .resources = &nothing,
                                .options = "{}",
                                .argv = program,
                                .env = none,
                                .folders = none,
                                .nodes = 1};
    const char *script = NULL, *out = NULL;
    stk_err why = {0};
    if (c->config->share_url == NULL) {
        return; /* the missing store is told */
    }
    if (stk_slurm_script(c->config, &job, c->arena, &script, &why) < 0 ||
        stk_slurm_call(argv, NULL, script, c->arena, &out, &why) < 0) {
        tell_error(c, &why);
    } else {
        tell(c, true, "Slurm would take a job with the stack's options");
    }
}

static void check_accounting(checker *c)
{
    static const char *const argv[] = {"sacct", "--noheader", "--allocations", "--jobs", "1", NULL};
    const char *out = NULL;
    stk_err why = {0};
    bool has = stk_slurm_call(argv, NULL, NULL, c->arena, &out, &why) == 0;
    tell(c, true, has ? "its accounting database answers" : "without an accounting database");
}

int stk_slurm_check(const stk_driver_config *config,
                    void (*say)(void *arg, bool is_good, const char *text), void *arg, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    checker c = {.config = config, .say = say, .arg = arg, .arena = arena, .err = err};
    STK_TRY(stk_err_if_null(arena, err));
    STK_TRY(stk_slurm_options_read(NULL, config->options, NULL, arena, &c.options, err));
    if (check_controller(&c)) {
        check_partition(&c);
        check_job(&c);
        check_accounting(&c);
    }
    return c.rc;
}
