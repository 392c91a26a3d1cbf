/* Reads options of Slurm, checks them by the table, and finds them by name. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "away/slurm/slurm_private.h"
#include "base/text.h"
#include "base/units.h"

typedef enum { TEXT, WHOLE, NUMBER, BOOL, TEXTS } option_type;
typedef enum { FLAG, JOB, STACK, REFUSED } option_how;

static const struct option {
    const char *name;
    option_type type;
    option_how how;
    const char *text;
} table[] = {
#define X(name, type, how, text) {#name, type, how, text},
#include "tbl/slurm_options.def"
#undef X
};
enum { N_OPTIONS = sizeof table / sizeof *table };

static const stk_json_limits limits = {.bytes = 1 << 20, .nodes = 100000, .depth = 16};

static bool read_number_of(const stk_json *value, double *ret)
{
    const char *text = stk_json_text(value);
    char *end = NULL;
    if (text == NULL) {
        return stk_json_real(value, ret);
    }
    *ret = strtod(text, &end);
    return end != text && *end == '\0' && isfinite(*ret);
}

/* A line break would begin another line of the script. */
static bool is_line(const stk_json *value)
{
    const char *text = stk_json_text(value);
    return text != NULL && *text != '\0' && strpbrk(text, "\r\n") == NULL;
}

static bool are_lines(const stk_json *value)
{
    const stk_json *items = NULL;
    uint32_t n = stk_json_as_list(value, &items);
    for (uint32_t i = 0; i < n; i++) {
        if (!is_line(&items[i])) {
            return false;
        }
    }
    return true;
}

/* Returns NULL if the value has the type, else the expected form. */
static const char *expected(const stk_json *value, option_type type)
{
    double number = 0;
    switch (type) {
    case TEXT:
        return is_line(value) || stk_json_is_number(value) ? NULL : "text of one line";
    case WHOLE:
        return read_number_of(value, &number) && number >= 0 && number == floor(number) &&
                       number < 1e9
                   ? NULL
                   : "a whole number, 0 or more";
    case NUMBER:
        return read_number_of(value, &number) && number > 0 && number < 1e9 ? NULL
                                                                            : "a number above 0";
    case BOOL:
        return value->kind == STK_JSON_BOOL ? NULL : "true or false";
    case TEXTS:
        break;
    }
    return are_lines(value) ? NULL : "a list of strings, each of one line";
}

static int unknown(const char *who, const char *name, stk_err *err)
{
    const char *names[N_OPTIONS];
    for (size_t i = 0; i < N_OPTIONS; i++) {
        names[i] = table[i].name;
    }
    const char *near = stk_units_nearest(name, names, N_OPTIONS);
    if (near == NULL) {
        return stk_err_set(err, STK_E_SPEC,
                           "%sStoker has no option '%s' of Slurm; docs/slurm.md lists them, and "
                           "`flags` passes any other flag on",
                           who, name);
    }
    return stk_err_set(err, STK_E_SPEC, "%sStoker has no option '%s' of Slurm; did you mean '%s'?",
                       who, name, near);
}

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
        if (strncmp(text, "--", 2) != 0) {
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

static int check_option(const char *who, const char *name, const stk_json *value, stk_err *err)
{
    size_t k = 0;
    while (k < N_OPTIONS && strcmp(table[k].name, name) != 0) {
        k++;
    }
    if (k == N_OPTIONS) {
        return unknown(who, name, err);
    }
    if (value->kind == STK_JSON_NULL) {
        return 0;
    }
    if (table[k].how == REFUSED) {
        return stk_err_set(err, STK_E_SPEC, "%sSlurm steps have no option '%s': %s", who, name,
                           table[k].text);
    }
    const char *form = expected(value, table[k].type);
    if (form != NULL) {
        return stk_err_set(err, STK_E_SPEC, "%soption '%s' of Slurm must be %s, not %s", who, name,
                           form, stk_text_or(value->text, stk_json_kind_words(value->kind)));
    }
    if (strcmp(name, "flags") != 0) {
        return 0;
    }
    return check_flags(who, value, err);
}

static int read_layer(const char *who, const char *text, stk_arena *arena, const stk_json **ret,
                      stk_err *err)
{
    stk_json *root = stk_arena_alloc(arena, sizeof *root);
    STK_TRY(stk_err_if_null(root, err));
    STK_TRY(stk_json_parse(text, strlen(text), "options", &limits, arena, root, err));
    if (root->kind != STK_JSON_MAP) {
        return stk_err_set(err, STK_E_SPEC, "%soptions of Slurm are %s; they must be a mapping",
                           who, stk_json_kind_words(root->kind));
    }
    for (uint32_t i = 0; i < root->n; i++) {
        STK_TRY(check_option(who, stk_json_key(root, i)->text, stk_json_value(root, i), err));
    }
    *ret = root;
    return 0;
}

int stk_slurm_options_read(const char *step, const char *options, const char *stack_options,
                           stk_arena *arena, stk_slurm_options *ret, stk_err *err)
{
    *ret = (stk_slurm_options){0};
    STK_TRY(
        read_layer("the stack: ", stk_text_or(stack_options, "{}"), arena, &ret->layers[1], err));
    /* A step's options are merged with the stack's, so options of stacks are valid there, too. */
    return read_layer(stk_text_when(step == NULL, "the stack: "), stk_text_or(options, "{}"), arena,
                      &ret->layers[0], err);
}

const stk_json *stk_slurm_option(const stk_slurm_options *options, const char *name)
{
    for (int i = 0; i < 2; i++) {
        const stk_json *value = stk_json_get(options->layers[i], name);
        if (value != NULL && value->kind != STK_JSON_NULL) {
            return value;
        }
    }
    return NULL;
}

const char *stk_slurm_text(const stk_slurm_options *options, const char *name)
{
    const stk_json *value = stk_slurm_option(options, name);
    return value == NULL ? NULL : value->text;
}

double stk_slurm_number(const stk_slurm_options *options, const char *name, double otherwise)
{
    const stk_json *value = stk_slurm_option(options, name);
    double number = 0;
    return value != NULL && read_number_of(value, &number) ? number : otherwise;
}

void stk_slurm_each_flag(const stk_slurm_options *options,
                         void (*put)(void *arg, const char *name, const char *value), void *arg)
{
    for (size_t i = 0; i < N_OPTIONS; i++) {
        const stk_json *value = stk_slurm_option(options, table[i].name);
        if (table[i].how != FLAG || value == NULL || stk_json_is_false(value)) {
            continue;
        }
        put(arg, table[i].name, table[i].type == BOOL ? NULL : value->text);
    }
}
