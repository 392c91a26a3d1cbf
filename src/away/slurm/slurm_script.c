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
    GANG_PORTS = 20000,
    IDLE_S = 5,       /* a pilot without work ends after so long */
    PILOT_SIGNAL = 60 /* seconds before the end of its time at which it is told */
};

#define MIB (1ll << 20)

typedef struct script {
    stk_buf *out;
    const stk_driver_config *config;
    const stk_remote_job *job;
    const stk_remote_array *array;  /* NULL: one job */
    uint32_t n_children;            /* of the array; 0: not known yet */
    const stk_slurm_flight *flight; /* a pilot for such jobs; or NULL */
    stk_slurm_options options;
    stk_slurm_gpus gpus;
    stk_arena *arena;
    bool is_export; /* the share's folder is the script's first argument */
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

static void put_whole_line(stk_buf *out, const char *name, int64_t number)
{
    stk_buf_printf(out, "export %s=%lld\n", name, (long long)number);
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

/* The list's path without ".json". */
static const char *array_path(const stk_driver_config *config, const stk_remote_array *array,
                              stk_arena *arena)
{
    size_t n = strlen(array->key);
    return stk_arena_printf(arena, "%s/%.*s", stk_text_or(config->share_url, "STORE"),
                            (int)(n - MIN(n, strlen(".json"))), array->key);
}

const char *stk_slurm_array_log_path(const stk_driver_config *config, const stk_remote_array *array,
                                     uint32_t index, stk_arena *arena)
{
    const char *path = array_path(config, array, arena);
    return path == NULL ? NULL : stk_arena_printf(arena, "%s-%u.log", path, index);
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
    if (s->is_export) { /* who submits it says where */
        put_flag(s->out, "open-mode", "append");
        return 0;
    }
    const char *path = NULL;
    if (s->flight != NULL) {
        path = stk_arena_printf(s->arena, "%s/%s/slurm.log",
                                stk_text_or(s->config->share_url, "STORE"), s->flight->key);
        path = literal(path, s->arena);
    } else if (s->array == NULL) {
        path = literal(log_path(s, "slurm.log"), s->arena);
    } else { /* %a: the child's index */
        path = literal(array_path(s->config, s->array, s->arena), s->arena);
        path = stk_arena_printf(s->arena, "%s-%%a.log", stk_text_or(path, ""));
    }
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
    if (s->flight == NULL && s->job->timeout_ms > 0 &&
        stk_slurm_option(&s->options, "time") == NULL) {
        put_number(s, "time", (whole + 59999) / 60000, "");
    }
    double signal = stk_slurm_number(&s->options, "signal", s->flight == NULL ? 0 : PILOT_SIGNAL);
    if (signal > 0) {
        char text[40];
        (void)snprintf(text, sizeof text, "%sTERM@%.0f", stk_text_when(s->job->nodes <= 1, "B:"),
                       signal);
        put_flag(s->out, "signal", text);
    }
}

/* Only what the job needs of our environment: sbatch has no more (stk_slurm_call). */
static int put_export(const script *s, stk_err *err)
{
    STK_BUF_AUTO names = STK_BUF_INIT(64 << 10);
    if (!s->is_export) {
        put_flag(s->out, "export", "ALL");
        return 0;
    }
    for (const char *const *name = stk_slurm_passed; *name != NULL; name++) {
        stk_buf_separate(&names, ",");
        stk_buf_text(&names, *name);
    }
    for (const char *const *pair = s->job->secret; pair != NULL && *pair != NULL; pair++) {
        stk_buf_printf(&names, ",%.*s", (int)strcspn(*pair, "="), *pair);
    }
    STK_TRY(stk_buf_check(&names, err));
    put_flag(s->out, "export", names.data);
    return 0;
}

static int put_names(const script *s, stk_err *err)
{
    const stk_remote_job *job = s->job;
    const char *comment = NULL;
    if (s->flight != NULL) {
        comment = stk_arena_printf(s->arena, "stoker run %s pilot", job->run);
    } else if (s->array == NULL) {
        comment = stk_arena_printf(s->arena, "stoker run %s step %s task %u attempt %u", job->run,
                                   job->step, job->task, job->attempt);
    } else {
        comment = stk_arena_printf(s->arena, "stoker run %s step %s", job->run, job->step);
    }
    STK_TRY(stk_err_if_null(comment, err));
    if (s->flight != NULL) {
        put_flag(s->out, "job-name", s->flight->name);
    } else if (s->array == NULL) {
        put_flag(s->out, "job-name", job->name);
    } else {
        char range[32] = "0-N";
        if (s->n_children > 0) {
            (void)snprintf(range, sizeof range, "0-%u", s->n_children - 1);
        }
        put_flag(s->out, "job-name", s->array->name);
        put_flag(s->out, "array", range);
    }
    put_flag(s->out, "comment", comment);
    return 0;
}

static int put_flags(const script *s, stk_err *err)
{
    const stk_remote_job *job = s->job;
    const stk_resources *r = job->resources;
    STK_TRY(put_names(s, err));
    STK_TRY(put_log(s, err));
    put_flag(s->out, "no-requeue", NULL); /* the engine retries, and records each attempt */
    put_number(s, "nodes", job->nodes, "");
    put_number(s, "ntasks-per-node", 1, "");
    int64_t cpu_milli = s->flight == NULL ? r->cpu_milli : s->flight->cpu_milli;
    int64_t memory = s->flight == NULL ? r->memory_bytes : s->flight->memory_bytes;
    if (cpu_milli > 0) {
        put_number(s, "cpus-per-task", (cpu_milli + 999) / 1000, "");
    }
    if (memory > 0) {
        put_number(s, "mem", (memory + MIB - 1) / MIB, "M");
    }
    STK_TRY(put_gres(s, err));
    put_time(s);
    stk_slurm_each_flag(&s->options, put_flag, s->out);
    return put_export(s, err);
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
    if (s->is_export) { /* it may lie within the project */
        stk_buf_text(s->out,
                     "STOKER_NEST_KEEP=\"$STOKER_NEST_KEEP${STOKER_NEST_KEEP:+:}$STOKER_STORE\"\n");
    }
    return 0;
}

static int put_image(const script *s, stk_err *err)
{
    const stk_remote_job *job = s->job;
    const char *how = stk_text_or(stk_slurm_text(&s->options, "container"), "");
    stk_alternative wants[STK_LIMIT_ASKS];
    if (job->image == NULL) {
        return 0;
    }
    const char *share = stk_text_or(s->config->share_url, "STORE");
    const char *const more[] = {share, NULL};
    STK_TRY(stk_slurm_check_paths(job->folders, err));
    STK_TRY(stk_slurm_check_paths(more, err));
    const char *named = stk_slurm_enroot_image(stk_text_or(job->image_named, job->image), s->arena);
    STK_TRY(stk_err_if_null(named, err));
    put_export_line(s->out, "STOKER_IMAGE", job->image);
    put_export_line(s->out, "STOKER_ENROOT_IMAGE", named);
    put_export_line(s->out, "STOKER_CONTAINER", how);
    const char *flag = "";
    if (s->gpus.n > 0) {
        uint32_t n = stk_spec_alternatives(job->resources, wants);
        const char *vendor = n == 0 ? NULL : stk_spec_vendor_of(&wants[0]);
        bool is_amd = vendor != NULL && strcmp(vendor, "amd") == 0;
        flag = is_amd ? "--rocm" : "--nv";
        put_export_line(s->out, "NVIDIA_VISIBLE_DEVICES", "all"); /* enroot's hook needs it */
    }
    put_export_line(s->out, "STOKER_GPU_FLAG", flag);
    return 0;
}

static const char *unpack_command(const script *s)
{
    if (strcmp(s->config->carry, "volume") == 0) {
        return "cp -a \"$STOKER_CARRY/.\" \"$at/stoker\"";
    }
    return "tar -xf \"$STOKER_CARRY\" -C \"$at/stoker\"";
}

static int put_job_variables(const script *s, stk_err *err)
{
    const stk_remote_job *job = s->job;
    for (const char *const *e = job->env; e != NULL && *e != NULL; e++) {
        const char *name = stk_arena_dupn(s->arena, *e, strcspn(*e, "="));
        STK_TRY(stk_err_if_null(name, err));
        put_export_line(s->out, name, *e + strlen(name) + 1);
    }
    if (s->is_export) {
        stk_buf_text(s->out, "export STOKER_STORE=\"$1\" STOKER_REFS=1\n");
    } else {
        put_export_line(s->out, "STOKER_STORE", stk_text_or(s->config->share_url, "STORE"));
    }
    STK_TRY(put_nest(s, err));
    if (strcmp(s->config->carry, "volume") == 0) {
        put_export_line(s->out, "STOKER_CARRY", stk_text_or(s->config->carry_volume, ""));
    } else {
        stk_buf_printf(s->out, "export STOKER_CARRY=\"$STOKER_STORE/carry/%s.tar\"\n",
                       stk_text_or(s->config->carry_digest, "DIGEST"));
    }
    const char *key = job->key;
    if (s->flight != NULL) {
        key = s->flight->key;
        put_whole_line(s->out, "STOKER_PILOT_CPUS", s->flight->cpu_milli / 1000);
        put_whole_line(s->out, "STOKER_PILOT_MEMORY", s->flight->memory_bytes);
        put_whole_line(s->out, "STOKER_PILOT_GPUS", s->flight->gpus);
        put_whole_line(s->out, "STOKER_PILOT_IDLE_MS",
                       (int64_t)(stk_slurm_number(&s->options, "pilot_idle", IDLE_S) * 1000));
    } else if (s->array != NULL) {
        key = s->array->key;
    }
    put_export_line(s->out, "STOKER_KEY", stk_text_or(key, "KEY"));
    return put_image(s, err);
}

/* What a node runs, as a variable: srun takes a command. */
static void put_start(const script *s)
{
    stk_buf_text(s->out, "STOKER_START=$(cat <<'STOKER_END'\n");
    stk_slurm_put_node(s->out, unpack_command(s), s->job->image != NULL, s->is_export);
    stk_buf_text(s->out, "STOKER_END\n)\n");
}

/* srun's --output= for each node's log. */
static int put_logs_of_nodes(const script *s, stk_buf *out, stk_err *err)
{
    const char *key = stk_text_or(s->job->key, s->job->name);
    const char *path = literal(log_path(s, "slurm-"), s->arena);
    STK_TRY(stk_err_if_null(path, err));
    stk_buf_text(out, "--output=");
    if (s->is_export) {
        stk_buf_printf(
            out, "\"$(printf %%s \"$STOKER_STORE\" | sed 's/%%/%%%%/g')/%s/slurm-%%n.log\"", key);
        return 0;
    }
    const char *of_nodes = stk_arena_printf(s->arena, "%s%%n.log", path);
    STK_TRY(stk_err_if_null(of_nodes, err));
    put_quoted(out, of_nodes);
    return 0;
}

static int put_pyxis(const script *s, stk_err *err)
{
    STK_BUF_AUTO flags = STK_BUF_INIT(64 << 10);
    if (s->job->image == NULL) {
        return 0;
    }
    if (s->job->nodes > 1) {
        STK_TRY(put_logs_of_nodes(s, &flags, err));
    }
    STK_TRY(stk_buf_check(&flags, err));
    stk_slurm_put_pyxis(s->out, unpack_command(s), stk_text_or(flags.data, ""));
    return 0;
}

/* Every node of a gang knows its number, and where node 0 listens: the address by which Slurm
 * itself reaches that node, and a port of the job's own. */
static int put_gang(const script *s, stk_err *err)
{
    stk_buf_printf(
        s->out,
        "first=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)\n"
        "lead=$(scontrol show node \"$first\" | sed -n 's/.*NodeAddr=\\([^ ]*\\).*/\\1/p')\n"
        "export STOKER_GANG_RDZV=\"${lead:-$first}:$((%d + SLURM_JOB_ID %% %d))\"\n",
        GANG_PORTS, GANG_PORTS);
    STK_TRY(put_pyxis(s, err));
    stk_buf_text(s->out, "STOKER_START=\"export STOKER_GANG_NODE=\\$SLURM_NODEID\n"
                         "$STOKER_START\"\n"
                         "exec srun --kill-on-bad-exit=0 --export=ALL ");
    STK_TRY(put_logs_of_nodes(s, s->out, err));
    stk_buf_text(s->out, " sh -c \"$STOKER_START\"\n");
    return 0;
}

static int write_script(script *s, const char **ret_script, stk_err *err)
{
    STK_BUF_AUTO out = STK_BUF_INIT(SCRIPT_BYTES);
    const stk_remote_job *job = s->job;
    s->out = &out;
    STK_TRY(stk_slurm_options_read(job->step, job->options, s->config->options, s->arena,
                                   &s->options, err));
    STK_TRY(stk_slurm_check_stack(s->config, &s->options, err));
    bool flies = !s->is_export && stk_slurm_may_fly(job, &s->options);
    STK_TRY(stk_slurm_gpus_of(job, &s->options, flies, s->arena, &s->gpus, err));
    s->gpus.n = s->flight == NULL ? s->gpus.n : s->flight->gpus;
    stk_buf_text(&out, "#!/bin/sh\n");
    STK_TRY(put_flags(s, err));
    stk_buf_text(&out, "unset LD_LIBRARY_PATH SLURM_JWT\n"); /* sbatch's (slurm_call.c) */
    STK_TRY(put_job_variables(s, err));
    if (job->nodes > 1 || job->image != NULL) { /* srun doesn't take it over from sbatch, 22.05 */
        stk_buf_text(&out, "test -z \"$SLURM_CPUS_PER_TASK\" || "
                           "export SRUN_CPUS_PER_TASK=\"$SLURM_CPUS_PER_TASK\"\n");
    }
    if (job->nodes > 1) {
        put_start(s);
        STK_TRY(put_gang(s, err));
    } else {
        STK_TRY(put_pyxis(s, err));
        stk_slurm_put_node(&out, unpack_command(s), job->image != NULL, s->is_export);
    }
    if (out.failed) {
        return stk_err_set(err, STK_E_SPEC, "its batch script is longer than %d MiB",
                           SCRIPT_BYTES / (1 << 20));
    }
    *ret_script = stk_buf_keep(&out, s->arena);
    return stk_err_if_null(*ret_script, err);
}

int stk_slurm_script(const stk_driver_config *config, const stk_remote_job *job, stk_arena *arena,
                     const char **ret_script, stk_err *err)
{
    script s = {.config = config, .job = job, .arena = arena};
    return write_script(&s, ret_script, err);
}

int stk_slurm_exported(const stk_driver_config *config, const stk_remote_job *job, stk_arena *arena,
                       const char **ret_script, stk_err *err)
{
    script s = {.config = config, .job = job, .arena = arena, .is_export = true};
    return write_script(&s, ret_script, err);
}

int stk_slurm_array_script(const stk_driver_config *config, const stk_remote_job *job,
                           const stk_remote_array *array, uint32_t n, stk_arena *arena,
                           const char **ret_script, stk_err *err)
{
    script s = {.config = config, .job = job, .array = array, .n_children = n, .arena = arena};
    return write_script(&s, ret_script, err);
}

int stk_slurm_pilot_script(const stk_driver_config *config, const stk_remote_job *job,
                           const stk_slurm_flight *flight, stk_arena *arena,
                           const char **ret_script, stk_err *err)
{
    script s = {.config = config, .job = job, .flight = flight, .arena = arena};
    return write_script(&s, ret_script, err);
}
