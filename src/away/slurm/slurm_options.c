/* Options of Slurm: the table, and what they may not be together. */
#include <stdio.h>
#include <string.h>

#include "away/slurm/slurm_private.h"
#include "base/text.h"

static const stk_option_row rows[] = {
#define X(name, type, how, text) STK_OPTION_ROW(name, type, how, text)
#include "tbl/slurm_options.def"
#undef X
};

static const stk_option_table table = {
    .rows = rows,
    .n = sizeof rows / sizeof *rows,
    .name = "Slurm",
    .page = "docs/slurm.md lists them, and `flags` passes any other flag on"};

/* What Stoker sets itself: another value would break the watch over the job. */
static int check_flags(const char *who, const stk_json *value, stk_err *err)
{
    static const char *const ours[] = {
        "--array",         "--job-name",      "--output",    "--error",
        "--input",         "--export",        "--wrap",      "--parsable",
        "--requeue",       "--no-requeue",    "--open-mode", "--comment",
        "--nodes",         "--ntasks",        "--wait",      "--ntasks-per-node",
        "--signal",        "--dependency",    "--chdir",     "--export-file",
        "--mem",           "--cpus-per-task", "--gres",      "--gpus",
        "--gpus-per-node", "--gpus-per-task", "--hold",      "--test-only"};
    const stk_json *items = NULL;
    uint32_t n = stk_json_as_list(value, &items);
    for (uint32_t i = 0; i < n; i++) {
        const char *text = stk_json_text(&items[i]);
        size_t len = strcspn(text, "= ");
        if (strncmp(text, "--cluster", strlen("--cluster")) == 0 && strchr("s= ", text[9])) {
            return stk_err_set(err, STK_E_SPEC,
                               "%sflags: Stoker doesn't look for jobs of other clusters; let "
                               "SLURM_CONF name that cluster's slurm.conf instead of '%s'",
                               who, text);
        }
        if (strncmp(text, "--", 2) != 0 || len == 2) {
            return stk_err_set(err, STK_E_SPEC,
                               "%sflags: '%s' isn't a long flag of sbatch, such as --nice=100", who,
                               text);
        }
        for (size_t k = 0; k < sizeof ours / sizeof *ours; k++) {
            if (strlen(ours[k]) == len && strncmp(ours[k], text, len) == 0) {
                return stk_err_set(err, STK_E_SPEC,
                                   "%sflags: Stoker sets %s itself, from the step's settings", who,
                                   ours[k]);
            }
        }
    }
    return 0;
}

int stk_slurm_options_read(const char *step, const char *options, const char *stack_options,
                           stk_arena *arena, stk_slurm_options *ret, stk_err *err)
{
    STK_TRY(stk_remote_options_read(&table, step, options, stack_options, arena, ret, err));
    for (int i = 1; i >= 0; i--) {
        bool is_of_stack = i == 1 || step == NULL;
        STK_TRY(check_flags(stk_text_when(is_of_stack, "the stack: "),
                            stk_json_get(ret->layers[i], "flags"), err));
    }
    return 0;
}

/* Those of the option `flags`: a value is one word, whatever is in it. */
static void put_more(const stk_json *flags,
                     void (*put)(void *arg, const char *name, const char *value), void *arg)
{
    const stk_json *items = NULL;
    uint32_t n = flags == NULL ? 0 : stk_json_as_list(flags, &items);
    for (uint32_t i = 0; i < n; i++) {
        char name[128];
        const char *text = stk_json_text(&items[i]) + strlen("--");
        size_t len = strcspn(text, "= ");
        (void)snprintf(name, sizeof name, "%.*s", (int)len, text);
        put(arg, name, text[len] == '\0' ? NULL : text + len + 1);
    }
}

void stk_slurm_each_flag(const stk_slurm_options *options,
                         void (*put)(void *arg, const char *name, const char *value), void *arg)
{
    for (uint32_t i = 0; i < table.n; i++) {
        const stk_json *value = stk_slurm_option(options, rows[i].name);
        if (rows[i].how != STK_OPTION_FLAG || value == NULL || stk_json_is_false(value)) {
            continue;
        }
        put(arg, rows[i].name, rows[i].type == STK_OPTION_BOOL ? NULL : value->text);
    }
    put_more(stk_slurm_option(options, "flags"), put, arg);
}

int stk_slurm_check_stack(const stk_driver_config *c, const stk_slurm_options *options,
                          stk_err *err)
{
    if (c->share_url != NULL && c->share_url[0] != '/') {
        return stk_err_set(err, STK_E_SPEC,
                           "the store of stack '%s' is %s, but jobs of Slurm need a folder that "
                           "this machine and the nodes share; set `store` to one",
                           c->stack, c->share_url);
    }
    if (c->share_url != NULL && strchr(c->share_url, '\\') != NULL) {
        return stk_err_set(err, STK_E_SPEC,
                           "the store of stack '%s' is %s, and Slurm can't write a job's output to "
                           "a path with a backslash; set `store` to another folder",
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
    const char *how = stk_slurm_text(options, "container");
    if (how != NULL && strcmp(how, "apptainer") != 0 && strcmp(how, "singularity") != 0 &&
        strcmp(how, "pyxis") != 0 && strcmp(how, "enroot") != 0) {
        return stk_err_set(
            err, STK_E_SPEC,
            "option 'container' must be apptainer, singularity, pyxis or enroot, not "
            "'%s'",
            how);
    }
    if (stk_slurm_number(options, "signal", 0) > 0 && stk_slurm_option(options, "time") == NULL) {
        return stk_err_set(err, STK_E_SPEC,
                           "option 'signal' counts from the end of the job's time; set `time`, "
                           "too");
    }
    return 0;
}
