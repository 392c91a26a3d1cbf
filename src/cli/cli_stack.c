/* stoker stack: the stacks of stoker.yaml, and whether they can be used. */
#include "cli/cli_stack.h"

#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "cli/cli_read.h"
#include "cli/cli_run.h"
#include "show/stack.h"
#include "sys/file.h"

/* Collects every stack that can be named, those of the file first. */
static int gather(const char *folder, stk_arena *arena, stk_stack **ret, uint32_t *ret_n,
                  stk_err *err)
{
    stk_stack here;
    uint32_t n = 0;
    STK_TRY(stk_stack_find(folder, NULL, arena, &here, err));
    stk_stack *all = stk_arena_array(arena, here.n_all + STK_PLACE_N, sizeof *all);
    STK_TRY(stk_err_if_null(all, err));
    for (uint32_t i = 0; i < here.n_all; i++) {
        all[n++] = here.all[i];
    }
    for (int k = 0; k < STK_PLACE_N; k++) {
        const char *word = stk_place_word((stk_place_kind)k);
        bool is_there = false;
        for (uint32_t i = 0; i < here.n_all; i++) {
            is_there = is_there || strcmp(here.all[i].name, word) == 0;
        }
        if (!is_there) {
            STK_TRY(stk_stack_find(folder, word, arena, &all[n], err));
            n += strcmp(all[n].name, word) == 0; /* "ssh" may mean a stack of the file */
        }
    }
    *ret = all;
    *ret_n = n;
    return 0;
}

static int list_stacks(const stk_cli *cli, const char *folder, stk_arena *arena, stk_buf *out,
                       stk_err *err)
{
    stk_stack *all = NULL;
    uint32_t n = 0;
    STK_TRY(gather(folder, arena, &all, &n, err));
    if (!stk_cli_json(cli)) {
        stk_show_stack_lines(all, n, out);
        return 0;
    }
    stk_json_open(out, NULL, '[');
    for (uint32_t i = 0; i < n; i++) {
        stk_show_stack_json(&all[i], out);
    }
    stk_json_close(out, ']');
    return 0;
}

/* The folder where a run begins to look for stoker.yaml: its document's folder or, for a Python
 * program, the current one. */
static int find_folder(const stk_cli *cli, stk_arena *arena, const char **ret, stk_err *err)
{
    const char *file = stk_cli_value(cli, "file");
    *ret = ".";
    if (file == NULL || stk_cli_is_python(file)) {
        return 0;
    }
    const char *slash = strrchr(file, '/');
    if (!stk_file_exists(file)) {
        return stk_err_set(err, STK_E_NOT_FOUND, "file %s doesn't exist", file);
    }
    if (slash == file) {
        *ret = "/";
    } else if (slash != NULL) {
        *ret = stk_arena_dupn(arena, file, (size_t)(slash - file));
    }
    return stk_err_if_null(*ret, err);
}

static int run_stack(const stk_cli *cli, stk_buf *out, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const char *word = stk_text_or(stk_cli_arg(cli, 0), "list"), *name = stk_cli_arg(cli, 1);
    const char *folder = NULL;
    bool lists = strcmp(word, "list") == 0, checks = strcmp(word, "check") == 0;
    stk_stack stack;
    if (!lists && !checks && strcmp(word, "show") != 0) {
        return stk_cli_usage(cli, err, "unknown action '%s': it is list, show or check", word);
    }
    if (lists && name != NULL) {
        return stk_cli_usage(cli, err, "'stoker stack list' takes no name; did you mean 'show'?");
    }
    if (!lists && name == NULL) {
        return stk_cli_usage(cli, err, "a stack is missing; 'stoker stack list' shows them");
    }
    STK_TRY(stk_err_if_null(arena, err));
    STK_TRY(find_folder(cli, arena, &folder, err));
    if (lists) {
        return list_stacks(cli, folder, arena, out, err);
    }
    STK_TRY(stk_stack_find(folder, name, arena, &stack, err));
    if (checks) {
        return stk_cli_stack_check(cli, &stack, arena);
    }
    if (stk_cli_json(cli)) {
        stk_show_stack_json(&stack, out);
    } else {
        stk_show_stack_text(&stack, out);
    }
    return 0;
}

static const stk_option options[] = {
    {"file", 0, "FILE", "look where a run of this pipeline document looks"}, {NULL}};

const stk_command stk_cmd_stack = {
    .name = "stack",
    .summary = "where steps can run: list, show, check",
    .usage = "[options] [list | show NAME | check NAME]",
    .text =
        "A stack is a place where steps run, with its settings: containers of this machine, "
        "Kubernetes, AWS Batch, Slurm, machines over SSH. stoker.yaml names stacks; it is in the "
        "current folder or "
        "above it "
        "up to the project's (the nearest folder that is yours and has stoker.yaml, .git or "
        "pyproject.toml). A run of a pipeline document begins to look in the document's folder. "
        "Each backend also has a stack of its own name, with defaults. A run chooses a stack with "
        "'--with NAME', a step with its own 'backend'.\n\n'list' shows all stacks, 'show' the "
        "settings of one. 'check' tries it: is its engine there, may we do there what a run does, "
        "are its options known, can its store be read and written? Exit status 3: something would "
        "stop a run.\n\nThe least that stoker.yaml needs for a cluster ('stoker carry --image "
        "IMAGE' "
        "makes runner_image), for a queue of AWS Batch, for Slurm, and for machines over SSH:\n\n"
        "stacks: {prod: {backend: kubernetes, store: 's3://BUCKET/PREFIX', runner_image: IMAGE, "
        "default_image: IMAGE}}\n\n"
        "stacks: {aws: {backend: batch, store: 's3://BUCKET/PREFIX', default_image: IMAGE, "
        "options: {queue: QUEUE}}}\n\n"
        "stacks: {lab: {backend: slurm, store: /SHARED/FOLDER}}\n\n"
        "stacks: {lab: {backend: ssh, hosts: [HOST]}}",
    .options = options,
    .max_args = 2,
    .run = run_stack};
