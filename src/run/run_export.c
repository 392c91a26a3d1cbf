#include "run/run_export.h"

#include <ctype.h>
#include <string.h>

#include "away/share/share.h"
#include "base/buf.h"
#include "base/text.h"
#include "image/stack/stack.h"
#include "run/run_containers.h"
#include "sys/dir.h"
#include "sys/file.h"

enum { SCRIPT_BYTES = 16 << 20, KEYS_BYTES = 64 << 20 };

/* --- what can be exported --- */

static bool is_shell_name(const char *name)
{
    bool is = !isdigit((unsigned char)*name);
    for (; *name != '\0'; name++) {
        is = is && (isalnum((unsigned char)*name) || *name == '_');
    }
    return is;
}

static int check_step(const stk_step *step, const stk_place *place, stk_err *err)
{
    const stk_settings *s = step->settings;
    if (place->kind != STK_PLACE_SLURM) {
        stk_err_set(err, STK_E_SPEC, "step '%s' runs on %s, so it has no batch script", step->name,
                    place->kind == STK_PLACE_LOCAL ? "this machine" : stk_place_word(place->kind));
        stk_err_hint(err, "name a stack of Slurm by --with, and leave `backend` out of the step");
        return STK_E_SPEC;
    }
    for (int i = 0; i < STK_HOOK_N; i++) {
        if (s->hooks[i].run != NULL || s->hooks[i].python != NULL) {
            return stk_err_set(err, STK_E_SPEC,
                               "step '%s' has a hook, which the engine calls, and exported jobs "
                               "run without one; leave it out",
                               step->name);
        }
    }
    for (uint32_t i = 0; i < s->n_secrets; i++) {
        if (!is_shell_name(s->secrets[i])) {
            return stk_err_set(err, STK_E_SPEC,
                               "step '%s': secret '%s' can't be a variable of a shell script; "
                               "rename it to letters, digits and '_'",
                               step->name, s->secrets[i]);
        }
    }
    return 0;
}

static int check_spec(const stk_spec *spec, const stk_run_options *options, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_run_containers containers;
    if (stk_spec_grows(spec)) {
        stk_err_set(err, STK_E_SPEC,
                    "pipeline '%s' is a graph that grows while it runs, so its jobs aren't known "
                    "before",
                    stk_spec_name(spec));
        stk_err_hint(err, "run it by `stoker run --with slurm`, or within one job: "
                          "sbatch --wrap 'stoker run FILE'");
        return STK_E_SPEC;
    }
    STK_TRY(stk_run_places(spec, options, arena, &containers, err));
    for (uint32_t i = 0; i < stk_spec_n_steps(spec); i++) {
        STK_TRY(check_step(stk_spec_step(spec, i), &containers.places[i], err));
    }
    return 0;
}

static int check_folder(const char *folder, stk_err *err)
{
    STK_DIR_AUTO dir = {0};
    STK_TRY(stk_dir_read_if(folder, &dir, err));
    if (dir.n == 0) {
        return stk_file_mkdirs(folder, 0755, err);
    }
    return stk_err_set(err, STK_E_USAGE,
                       "folder %s isn't empty; name one that isn't there yet, or empty it", folder);
}

/* --- the run --- */

static int order_all(stk_spec *spec, const stk_run_options *options, stk_err *err)
{
    stk_run_config config = {.spec = spec, .options = options, .signal_fd = -1, .hangup_fd = -1};
    stk_run *run = NULL;
    stk_run_status status = STK_RUN_FAILED;
    int rc = stk_run_open(&config, &run, err);
    if (rc == 0) {
        rc = stk_run_loop(run, &status, err);
    }
    if (rc == 0 && status != STK_RUN_SUCCEEDED) {
        rc = stk_err_set(err, STK_E_SPEC, "%s",
                         stk_text_or(stk_run_error(run), "the steps couldn't be ordered"));
    }
    if (rc == 0) {
        rc = stk_run_sync(run, err);
    }
    stk_run_close(run);
    return rc;
}

typedef struct list {
    stk_arena *arena;
    const char **keys;
    uint32_t n, cap;
} list;

static int list_key(void *arg, const char *key, int64_t size, int64_t mtime_ms)
{
    list *l = arg;
    (void)size, (void)mtime_ms;
    const char **keys = stk_arena_grow(l->arena, l->keys, l->n, sizeof *keys, &l->cap);
    if (keys == NULL || (keys[l->n] = stk_arena_dup(l->arena, key)) == NULL) {
        return STK_E_NOMEM;
    }
    l->keys = keys;
    l->n++;
    return 0;
}

/* Of an attempt only its order is true; the run's log tells of ends that never were. */
static bool is_true(const char *key)
{
    const char *name = stk_text_behind(key, '/');
    return strcmp(name, "job.json") == 0 || strcmp(name, "spec.json") == 0;
}

/* Removes what let the engine go on: ends, stand-ins of outputs, the log. */
static int remove_pretence(stk_share *share, stk_arena *arena, stk_err *err)
{
    list runs = {.arena = arena}, refs = {.arena = arena};
    STK_TRY(stk_share_list(share, "runs/", NULL, list_key, &runs, err));
    STK_TRY(stk_share_list(share, "refs/", NULL, list_key, &refs, err));
    for (uint32_t i = 0; i < runs.n; i++) {
        if (!is_true(runs.keys[i])) {
            STK_TRY(stk_share_delete(share, runs.keys[i], err));
        }
    }
    for (uint32_t i = 0; i < refs.n; i++) {
        const char *digest = refs.keys[i] + strlen("refs/");
        const char *key = stk_arena_printf(arena, "artifacts/%.2s/%s", digest, digest + 2);
        STK_TRY(stk_err_if_null(key, err));
        STK_TRY(stk_share_delete(share, key, err));
    }
    return 0;
}

/* --- submit.sh --- */

static const char head[] =
    "# Needs sbatch, and of Stoker only this folder, which the nodes have under the same path.\n"
    "#   sh submit.sh           submits; logs/ has what the steps print, results/ their outputs\n"
    "#   sh submit.sh --again   removes what an earlier submission made, and submits anew\n"
    "set -eu\n"
    "here=$(cd \"$(dirname \"$0\")\" && pwd -P)\n"
    "if [ \"${1:-}\" = --again ]; then\n"
    "    rm -rf \"$here/submitted\" \"$here/results\" \"$here/logs\"\n"
    "    find \"$here/runs\" -type f ! -name job.json ! -name spec.json -exec rm -f {} +\n"
    "fi\n"
    "if ! mkdir \"$here/submitted\" 2>/dev/null; then\n"
    "    echo \"submit.sh: it is submitted already: $here/submitted has the jobs' numbers.\" >&2\n"
    "    echo \"submit.sh: --again removes its results and submits anew\" >&2\n"
    "    exit 1\n"
    "fi\n"
    "undo() {\n"
    "    cat \"$here\"/submitted/* 2>/dev/null | xargs -r scancel || true\n"
    "    rm -rf \"$here/submitted\"\n"
    "}\n"
    "trap undo EXIT\n"
    "mkdir -p \"$here/logs\"\n"
    "logs=$(printf %s \"$here/logs\" | sed 's/%/%%/g')\n"
    "submit() { # STEP [DEPENDENCY]\n"
    "    id=$(sbatch --parsable --kill-on-invalid-dep=yes --job-name=\"$1\" --chdir=\"$here\" \\\n"
    "        --output=\"$logs/$1.log\" ${2:+--dependency=\"$2\"} \"$here/steps/$1.sh\" \"$here\")\n"
    "    echo \"${id%%;*}\" >\"$here/submitted/$1\"\n"
    "    echo \"$1: job ${id%%;*}\"\n"
    "}\n"
    "id_of() {\n"
    "    cat \"$here/submitted/$1\"\n"
    "}\n\n";

static void mark_input(const stk_input *in, bool *needs)
{
    if (in->kind == STK_INPUT_OUTPUT) {
        needs[in->step] = true;
    }
    for (uint32_t i = 0; in->kind == STK_INPUT_LIST && i < in->n_items; i++) {
        mark_input(&in->items[i], needs);
    }
}

static int put_submit(const stk_spec *spec, uint32_t i_step, stk_arena *arena, stk_buf *out,
                      stk_err *err)
{
    const stk_step *step = stk_spec_step(spec, i_step);
    uint32_t n = stk_spec_n_steps(spec), n_needs = 0;
    bool *needs = stk_arena_array(arena, n, sizeof *needs);
    STK_TRY(stk_err_if_null(needs, err));
    for (uint32_t i = 0; i < step->n_inputs; i++) {
        mark_input(&step->inputs[i], needs);
    }
    for (uint32_t i = 0; i < step->n_after; i++) {
        needs[step->after[i]] = true;
    }
    stk_buf_text(out, "(\n");
    for (uint32_t i = 0; i < step->settings->n_secrets; i++) {
        const char *name = step->settings->secrets[i];
        stk_buf_printf(out, "    export %s=\"${STOKER_SECRET_%s:?step %s needs it}\"\n", name, name,
                       step->name);
    }
    stk_buf_printf(out, "    submit %s", step->name);
    for (uint32_t i = 0; i < n; i++) {
        if (needs[i]) {
            stk_buf_text(out, n_needs++ == 0 ? " \"afterok" : "");
            stk_buf_printf(out, ":$(id_of %s)", stk_spec_step(spec, i)->name);
        }
    }
    stk_buf_text(out, stk_text_when(n_needs > 0, "\""));
    return stk_buf_text(out, "\n)\n");
}

/* Steps stand behind all that they need (spec.h). */
static int put_script(const stk_spec *spec, const char *folder, stk_arena *arena, stk_err *err)
{
    STK_BUF_AUTO out = STK_BUF_INIT(SCRIPT_BYTES);
    stk_buf_printf(&out, "#!/bin/sh\n# Submits pipeline '%s' to Slurm, a job for each step.\n%s",
                   stk_spec_name(spec), head);
    for (uint32_t i = 0; i < stk_spec_n_steps(spec); i++) {
        STK_TRY(put_submit(spec, i, arena, &out, err));
    }
    stk_buf_text(&out, "trap - EXIT\n");
    STK_TRY(stk_buf_check(&out, err));
    const char *path = stk_arena_printf(arena, "%s/submit.sh", folder);
    STK_TRY(stk_err_if_null(path, err));
    return stk_file_write_atomic(path, out.data, out.len, 0755, err);
}

int stk_run_export_slurm(stk_spec *spec, const stk_run_options *options, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    STK_SHARE_AUTO share = NULL;
    STK_TRY(check_spec(spec, options, err));
    STK_TRY(check_folder(options->share, err));
    STK_TRY(order_all(spec, options, err));
    STK_TRY(stk_share_open(options->share, &share, err));
    STK_TRY(remove_pretence(share, arena, err));
    return put_script(spec, options->share, arena, err);
}
