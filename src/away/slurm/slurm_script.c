/* The batch script: sbatch's flags, the agent's variables, and how our program gets onto the node.
 * Pure. */
#include <stdio.h>
#include <string.h>
#include <sys/param.h>

#include "away/slurm/slurm_private.h"
#include "base/text.h"

enum {
    SCRIPT_BYTES = 4 << 20, /* Slurm's own limit (max_script_size) */
    SLACK_MS = 300000,      /* Slurm's deadline is so much later than the agent's */
    GANG_PORTS = 20000
};

#define MIB (1ll << 20)

/* What the node runs, the same on each of a gang's: our program is unpacked into a folder of the
 * job's own, and gets the signal that the shell gets. */
static const char of_node[] =
    "at=$(mktemp -d \"${TMPDIR:-/tmp}/stoker-XXXXXX\") || exit 74\n"
    "agent= told=\n"
    "trap 'told=1; test -z \"$agent\" || kill -TERM $agent' TERM INT\n"
    "mkdir \"$at/stoker\" && $STOKER_UNPACK || { rm -rf \"$at\"; exit 74; }\n"
    "export STOKER_NEST_AT=\"$at\"\n"
    "\"$at/stoker/bin/ld.so\" --library-path \"$at/stoker/bin/lib\" \"$at/stoker/bin/stoker\" "
    "agent \"$STOKER_STORE\" \"$STOKER_KEY\" &\n"
    "agent=$!\n"
    "test -z \"$told\" || kill -TERM $agent\n"
    "while wait $agent; s=$?; [ $s -gt 128 ] && kill -0 $agent 2>/dev/null; do :; done\n"
    "chmod -R u+w \"$at\"; rm -rf \"$at\"\n"
    "exit $s\n";

typedef struct script {
    stk_buf *out;
    const stk_driver_config *config;
    const stk_remote_job *job;
    stk_slurm_options options;
    stk_slurm_gpus gpus;
    stk_arena *arena;
} script;

/* In quotes, for a shell and for sbatch's own reader of #SBATCH lines. */
static void put_quoted(stk_buf *out, const char *text)
{
    stk_buf_char(out, '\'');
    for (; *text != '\0'; text++) {
        if (*text == '\'') {
            stk_buf_text(out, "'\\''");
        } else {
            stk_buf_char(out, *text);
        }
    }
    stk_buf_char(out, '\'');
}

static void put_export_line(stk_buf *out, const char *name, const char *value)
{
    stk_buf_printf(out, "export %s=", name);
    put_quoted(out, value);
    stk_buf_char(out, '\n');
}

/* sbatch's reader takes a backslash before any character that is no letter or digit. */
static void put_flag(void *arg, const char *name, const char *value)
{
    stk_buf *out = arg;
    stk_buf_printf(out, "#SBATCH --%s", name);
    if (value != NULL) {
        stk_buf_text(out, "=\"");
        for (; *value != '\0'; value++) {
            stk_buf_text(out, stk_text_when(strchr("\"\\", *value) != NULL, "\\"));
            stk_buf_char(out, *value);
        }
        stk_buf_char(out, '"');
    }
    stk_buf_char(out, '\n');
}

static void put_number(const script *s, const char *name, int64_t number, const char *unit)
{
    char text[40];
    (void)snprintf(text, sizeof text, "%lld%s", (long long)number, unit);
    put_flag(s->out, name, text);
}

static const char *log_path(const script *s, const char *name)
{
    return stk_arena_printf(s->arena, "%s/%s/%s", stk_text_or(s->config->share_url, "STORE"),
                            stk_text_or(s->job->key, s->job->name), name);
}

const char *stk_slurm_log_path(const stk_driver_config *config, const stk_remote_job *job,
                               uint32_t node, stk_arena *arena)
{
    const script s = {.config = config, .job = job, .arena = arena};
    char name[32] = "slurm.log";
    if (job->nodes > 1) {
        (void)snprintf(name, sizeof name, "slurm-%u.log", node);
    }
    return log_path(&s, name);
}

/* In a file's name sbatch and srun expand words that begin with '%'. */
static const char *literal(const char *path, stk_arena *arena)
{
    if (path == NULL) {
        return NULL;
    }
    char *copy = stk_arena_alloc(arena, 2 * strlen(path) + 1), *to = copy;
    for (; copy != NULL && *path != '\0'; path++) {
        *to++ = *path;
        if (*path == '%') {
            *to++ = '%';
        }
    }
    return copy;
}

static int put_log(const script *s, stk_err *err)
{
    const char *path = literal(log_path(s, "slurm.log"), s->arena);
    STK_TRY(stk_err_if_null(path, err));
    put_flag(s->out, "output", path);
    put_flag(s->out, "open-mode", "append");
    return 0;
}

static int put_gres(const script *s, stk_err *err)
{
    const char *more = stk_slurm_text(&s->options, "gres");
    STK_BUF_AUTO gres = STK_BUF_INIT(4096);
    if (s->gpus.n > 0 && s->gpus.type != NULL) {
        stk_buf_printf(&gres, "gpu:%s:%u", s->gpus.type, s->gpus.n);
    } else if (s->gpus.n > 0) {
        stk_buf_printf(&gres, "gpu:%u", s->gpus.n);
    }
    if (more != NULL) {
        stk_buf_separate(&gres, ",");
        stk_buf_text(&gres, more);
    }
    STK_TRY(stk_buf_check(&gres, err));
    if (gres.len > 0) {
        put_flag(s->out, "gres", gres.data);
    }
    return 0;
}

static void put_time(const script *s)
{
    int64_t whole = s->job->timeout_ms + s->job->grace_ms + SLACK_MS;
    if (s->job->timeout_ms > 0 && stk_slurm_option(&s->options, "time") == NULL) {
        put_number(s, "time", (whole + 59999) / 60000, "");
    }
    double signal = stk_slurm_number(&s->options, "signal", 0);
    if (signal > 0) {
        char text[40];
        (void)snprintf(text, sizeof text, "%sTERM@%.0f", stk_text_when(s->job->nodes <= 1, "B:"),
                       signal);
        put_flag(s->out, "signal", text);
    }
}

/* Only what the job needs of our environment; secrets are variables of sbatch's own. */
static int put_export(const script *s, stk_err *err)
{
    STK_BUF_AUTO names = STK_BUF_INIT(64 << 10);
    stk_buf_text(&names, "PATH,HOME,USER,LOGNAME,LANG,TMPDIR");
    for (const char *const *pair = s->job->secret; pair != NULL && *pair != NULL; pair++) {
        stk_buf_printf(&names, ",%.*s", (int)strcspn(*pair, "="), *pair);
    }
    STK_TRY(stk_buf_check(&names, err));
    put_flag(s->out, "export", names.data);
    return 0;
}

static int put_flags(const script *s, stk_err *err)
{
    const stk_remote_job *job = s->job;
    const stk_resources *r = job->resources;
    const stk_json *items = NULL;
    const stk_json *more = stk_slurm_option(&s->options, "flags");
    uint32_t n_more = more == NULL ? 0 : stk_json_as_list(more, &items);
    const char *comment = stk_arena_printf(s->arena, "stoker run %s step %s task %u attempt %u",
                                           job->run, job->step, job->task, job->attempt);
    STK_TRY(stk_err_if_null(comment, err));
    put_flag(s->out, "job-name", job->name);
    put_flag(s->out, "comment", comment);
    STK_TRY(put_log(s, err));
    put_flag(s->out, "no-requeue", NULL); /* the engine retries, and records each attempt */
    put_number(s, "nodes", job->nodes, "");
    put_number(s, "ntasks-per-node", 1, "");
    if (r->cpu_milli > 0) {
        put_number(s, "cpus-per-task", (r->cpu_milli + 999) / 1000, "");
    }
    if (r->memory_bytes > 0) {
        put_number(s, "mem", (r->memory_bytes + MIB - 1) / MIB, "M");
    }
    STK_TRY(put_gres(s, err));
    put_time(s);
    stk_slurm_each_flag(&s->options, put_flag, s->out);
    STK_TRY(put_export(s, err));
    for (uint32_t i = 0; i < n_more; i++) {
        stk_buf_printf(s->out, "#SBATCH %s\n", items[i].text);
    }
    return 0;
}

/* Lists are separated by colons. */
static int join(const char *const *paths, stk_buf *out, stk_err *err)
{
    for (; *paths != NULL; paths++) {
        if (strchr(*paths, ':') != NULL || (*paths)[0] != '/') {
            return stk_err_set(err, STK_E_SPEC,
                               "'%s' can't be a folder of a job of Slurm; it must be an absolute "
                               "path without a colon",
                               *paths);
        }
        stk_buf_separate(out, ":");
        stk_buf_text(out, *paths);
    }
    return stk_buf_check(out, err);
}

static int put_nest(const script *s, stk_err *err)
{
    STK_BUF_AUTO empty = STK_BUF_INIT(64 << 10);
    STK_BUF_AUTO kept = STK_BUF_INIT(64 << 10);
    const stk_json *items = NULL;
    const stk_json *keep = stk_slurm_option(&s->options, "keep");
    uint32_t n = keep == NULL ? 0 : stk_json_as_list(keep, &items);
    const char **paths = stk_arena_array(s->arena, (size_t)n + 1, sizeof *paths);
    STK_TRY(stk_err_if_null(paths, err));
    for (uint32_t i = 0; i < n; i++) {
        paths[i] = items[i].text;
    }
    STK_TRY(join(s->job->folders, &empty, err));
    STK_TRY(join(paths, &kept, err));
    put_export_line(s->out, "STOKER_NEST_EMPTY", stk_text_or(empty.data, ""));
    put_export_line(s->out, "STOKER_NEST_KEEP", stk_text_or(kept.data, ""));
    return 0;
}

static int put_job_variables(const script *s, stk_err *err)
{
    const stk_remote_job *job = s->job;
    const char *share = stk_text_or(s->config->share_url, "STORE"), *unpack = NULL;
    for (const char *const *e = job->env; e != NULL && *e != NULL; e++) {
        const char *name = stk_arena_dupn(s->arena, *e, strcspn(*e, "="));
        STK_TRY(stk_err_if_null(name, err));
        put_export_line(s->out, name, *e + strlen(name) + 1);
    }
    STK_TRY(put_nest(s, err));
    if (strcmp(s->config->carry, "volume") == 0) {
        put_export_line(s->out, "STOKER_CARRY", stk_text_or(s->config->carry_volume, ""));
        unpack = "cp -a \"$STOKER_CARRY/.\" \"$at/stoker\"";
    } else {
        const char *digest = stk_text_or(s->config->carry_digest, "DIGEST");
        const char *tar = stk_arena_printf(s->arena, "%s/carry/%s.tar", share, digest);
        STK_TRY(stk_err_if_null(tar, err));
        put_export_line(s->out, "STOKER_CARRY", tar);
        unpack = "tar -xf \"$STOKER_CARRY\" -C \"$at/stoker\"";
    }
    put_export_line(s->out, "STOKER_STORE", share);
    put_export_line(s->out, "STOKER_KEY", stk_text_or(job->key, "KEY"));
    stk_buf_text(s->out, "STOKER_START=$(cat <<'STOKER_END'\n");
    for (const char *at = of_node; *at != '\0';) {
        static const char word[] = "$STOKER_UNPACK";
        if (strncmp(at, word, sizeof word - 1) == 0) {
            stk_buf_text(s->out, unpack);
            at += sizeof word - 1;
        } else {
            stk_buf_char(s->out, *at++);
        }
    }
    stk_buf_text(s->out, "STOKER_END\n)\n");
    return 0;
}

/* Every node of a gang knows its number, and where node 0 listens: the address by which Slurm
 * itself reaches that node, and a port of the job's own. */
static int put_gang(const script *s, stk_err *err)
{
    const char *path = literal(log_path(s, ""), s->arena);
    STK_TRY(stk_err_if_null(path, err));
    stk_buf_printf(
        s->out,
        "first=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)\n"
        "lead=$(scontrol show node \"$first\" | sed -n 's/.*NodeAddr=\\([^ ]*\\).*/\\1/p')\n"
        "export STOKER_GANG_RDZV=\"${lead:-$first}:$((%d + SLURM_JOB_ID %% %d))\"\n"
        "STOKER_START=\"export STOKER_GANG_NODE=\\$SLURM_NODEID\n$STOKER_START\"\n"
        "exec srun --kill-on-bad-exit=0 --export=ALL --output=",
        GANG_PORTS, GANG_PORTS);
    const char *of_nodes = stk_arena_printf(s->arena, "%sslurm-%%n.log", path);
    STK_TRY(stk_err_if_null(of_nodes, err));
    put_quoted(s->out, of_nodes);
    stk_buf_text(s->out, " sh -c \"$STOKER_START\"\n");
    return 0;
}

static int check_config(const script *s, stk_err *err)
{
    const stk_driver_config *c = s->config;
    if (c->share_url != NULL && c->share_url[0] != '/') {
        return stk_err_set(err, STK_E_SPEC,
                           "the store of stack '%s' is %s, but jobs of Slurm need a folder that "
                           "this machine and the nodes share; set `store` to one",
                           c->stack, c->share_url);
    }
    if (strcmp(c->carry, "image") == 0) {
        return stk_err_set(err, STK_E_SPEC,
                           "stack '%s': carry 'image' is only for Kubernetes; on Slurm it must be "
                           "'store' or 'volume'",
                           c->stack);
    }
    if (strcmp(c->carry, "volume") == 0 && (c->carry_volume == NULL || c->carry_volume[0] != '/')) {
        return stk_err_set(err, STK_E_SPEC,
                           "stack '%s': carry_volume must be a folder of the nodes with the output "
                           "of `stoker carry`",
                           c->stack);
    }
    if (stk_slurm_number(&s->options, "signal", 0) > 0 &&
        stk_slurm_option(&s->options, "time") == NULL) {
        return stk_err_set(err, STK_E_SPEC,
                           "option 'signal' counts from the end of the job's time; set `time`, "
                           "too");
    }
    return 0;
}

int stk_slurm_script(const stk_driver_config *config, const stk_remote_job *job, stk_arena *arena,
                     const char **ret_script, stk_err *err)
{
    STK_BUF_AUTO out = STK_BUF_INIT(SCRIPT_BYTES);
    script s = {.out = &out, .config = config, .job = job, .arena = arena};
    STK_TRY(
        stk_slurm_options_read(job->step, job->options, config->options, arena, &s.options, err));
    STK_TRY(check_config(&s, err));
    STK_TRY(stk_slurm_gpus_of(job, &s.options, arena, &s.gpus, err));
    stk_buf_text(&out, "#!/bin/sh\n");
    STK_TRY(put_flags(&s, err));
    STK_TRY(put_job_variables(&s, err));
    if (job->nodes > 1) {
        STK_TRY(put_gang(&s, err));
    } else {
        stk_buf_text(&out, "exec sh -c \"$STOKER_START\"\n");
    }
    if (out.failed) {
        return stk_err_set(err, STK_E_SPEC, "its batch script is longer than %d MiB",
                           SCRIPT_BYTES / (1 << 20));
    }
    *ret_script = stk_buf_keep(&out, arena);
    return stk_err_if_null(*ret_script, err);
}
