/* `stoker stack check`: Slurm's commands, its controller, the partition, accounts and GPUs that the
 * stack names, and whether a job like its jobs could start. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/param.h>

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

/* Returns the GPUs that a job of the stack can get on a node, at most. */
static uint32_t check_partition(checker *c)
{
    const char *name = stk_slurm_text(&c->options, "partition");
    const char *only = name == NULL ? NULL : stk_arena_printf(c->arena, "--partition=%s", name);
    const char *const shown[] = {"sinfo", "--noheader", "-o", "%P %a %D nodes %G;", only, NULL};
    const char *const counted[] = {"sinfo", "--noheader", "--format=%P|%G", only, NULL};
    const char *said = ask_slurm(c, shown), *gres = NULL;
    stk_err why = {0};
    if (said != NULL && name != NULL && *said == '\0') {
        tell(c, false, stk_arena_printf(c->arena, "Slurm has no partition '%s'", name));
        return 0;
    }
    if (said == NULL || stk_slurm_call(counted, NULL, NULL, c->arena, &gres, &why) < 0) {
        return 0; /* told, or told of the next command */
    }
    tell(c, true, stk_arena_printf(c->arena, "partitions: %s", said));
    return stk_slurm_most_gpus(gres, stk_slurm_text(&c->options, "gpu_type"), name == NULL);
}

/* The script of the job, or of the pilot in which the stack runs such attempts; `ret_what`: what
 * Slurm is asked to take. */
static int write_job(checker *c, const stk_remote_job *job, uint32_t most_gpus,
                     const char **ret_script, const char **ret_what, stk_err *err)
{
    uint32_t gpus = (uint32_t)MAX(job->resources->base.gpu_count, 0);
    const char *with =
        gpus == 0 ? "" : stk_arena_printf(c->arena, " with %u GPU%s", gpus, stk_text_plural(gpus));
    if (!stk_slurm_may_fly(job, &c->options)) {
        *ret_what = stk_arena_printf(c->arena, "a job%s", stk_text_or(with, ""));
        return stk_slurm_script(c->config, job, c->arena, ret_script, err);
    }
    uint32_t most = (uint32_t)stk_slurm_number(&c->options, "pilot_gpus", most_gpus);
    stk_slurm_flight flight = stk_slurm_flight_of(job, &c->options, most, most);
    flight.name = job->name;
    flight.key = job->key;
    with = flight.gpus == 0 ? ""
                            : stk_arena_printf(c->arena, " and %u GPU%s", flight.gpus,
                                               stk_text_plural(flight.gpus));
    *ret_what =
        stk_arena_printf(c->arena, "a pilot of %" PRId64 " CPU%s%s", flight.cpu_milli / 1000,
                         stk_text_plural((uint64_t)flight.cpu_milli / 1000), stk_text_or(with, ""));
    return stk_slurm_pilot_script(c->config, job, &flight, c->arena, ret_script, err);
}

/* Whether Slurm would take a job of the stack's options: --test-only submits nothing. */
static void check_job(checker *c, uint32_t gpus, uint32_t most_gpus)
{
    static const char *const argv[] = {"sbatch", "--test-only", NULL};
    static const char *const program[] = {"true", NULL}, *const none[] = {NULL};
    stk_resources asks = STK_RESOURCES_UNSET;
    asks.base.gpu_count = gpus == 0 ? -1 : (int64_t)gpus;
    const stk_remote_job job = {.run = "check",
                                .pipeline = "check",
                                .step = "check",
                                .key = "runs/check",
                                .attempt = 1,
                                .name = "s-check",
                                .resources = &asks,
                                .options = "{}",
                                .argv = program,
                                .env = none,
                                .folders = none,
                                .nodes = 1};
    const char *script = NULL, *what = NULL, *out = NULL;
    stk_err why = {0};
    if (write_job(c, &job, most_gpus, &script, &what, &why) < 0) {
        tell_error(c, &why);
    } else if (stk_slurm_call(argv, NULL, script, c->arena, &out, &why) < 0) {
        char text[1400];
        tell(c, false,
             stk_arena_printf(c->arena, "%s: %s", stk_text_or(what, "a job"),
                              stk_err_format(&why, text, (int)sizeof text)));
    } else {
        tell(c, true,
             stk_arena_printf(c->arena, "Slurm would take %s with the stack's options",
                              stk_text_or(what, "a job")));
    }
}

/* One as of a step that asks for nothing, and one as of a step that asks for GPUs. */
static void check_jobs(checker *c, uint32_t most_gpus)
{
    uint32_t gpus = (uint32_t)stk_slurm_number(&c->options, "gpu", most_gpus > 0 ? 1 : 0);
    bool is_named = stk_slurm_option(&c->options, "gpu_type") != NULL;
    if (c->config->share_url == NULL) {
        return; /* the missing store is told */
    }
    check_job(c, 0, most_gpus);
    if (gpus > 0 || is_named) {
        check_job(c, MAX(gpus, 1), most_gpus);
    } else {
        tell(c, true, "no GPUs are listed, so steps that ask for one would wait or be refused");
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
        check_jobs(&c, check_partition(&c));
        check_accounting(&c);
    }
    return c.rc;
}
