/* `stoker launch` with options of `accelerate launch`: they become the variables that accelerate's
 * launcher sets for its ranks (src/tbl/launch_accelerate.def). */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/cli_launch.h"

typedef enum { EVER, COMPILE, DEEPSPEED, FSDP, MEGATRON, FP8, PARALLEL, CONTEXT, SEQUENCES } group;
typedef enum { TEXT, LOWER, UPPER, WHOLE, REAL, TRUTH, BIT, BITS, FLAG, YES, ONE } form;

static const struct row {
    group group;
    const char *name, *variable;
    form form;
    const char *standard, *values;
} rows[] = {
#define X(group, name, arg, variable, form, standard, values)                                      \
    {group, name, variable, form, standard, values},
#include "tbl/launch_accelerate.def"
#undef X
};
enum { N_ROWS = sizeof rows / sizeof *rows, VALUE_BYTES = PATH_MAX };

/* What decides which variables accelerate sets. */
typedef struct choice {
    bool cpu, deepspeed, fsdp, megatron, many, parallel, fp8;
    int64_t context, sequences;
} choice;

/* Three values for three variables. */
static bool set_bits(const char *variables, const char *text, bool given, bool set)
{
    char names[256], words[256];
    char *at_names = names;
    char *at_words = words;
    (void)snprintf(names, sizeof names, "%s", variables);
    (void)snprintf(words, sizeof words, "%s", text);
    for (char *name; (name = strsep(&at_names, ",")) != NULL;) {
        const char *word = strsep(&at_words, ",");
        if (word == NULL || (!stk_cli_is_true(word) && !stk_cli_is_false(word))) {
            return false;
        }
        if (given) { /* the standard value isn't parsed there */
            word = stk_cli_is_true(word) ? "1" : "0";
        }
        if (set) {
            (void)setenv(name, word, 1);
        }
    }
    return at_words == NULL;
}

/* Checks the option's value; `set`: sets its variable. */
static int take_row(const stk_cli *cli, const struct row *row, bool set, stk_err *err)
{
    const char *given = stk_cli_value(cli, row->name);
    const char *text = given;
    char value[VALUE_BYTES];
    bool good = true;
    if (row->form == FLAG && given == NULL) {
        text = "False";
    } else if (row->form == FLAG) {
        text = "True";
    } else if (given == NULL && row->standard[0] != '\0') {
        text = row->standard;
    }
    if (text == NULL) {
        return 0;
    }
    (void)snprintf(value, sizeof value, "%s", text);
    switch (row->form) {
    case TEXT:
    case FLAG:
        break;
    case LOWER:
    case UPPER:
        stk_cli_print_case(text, row->form == UPPER, value, sizeof value);
        break;
    case WHOLE:
        good = stk_cli_print_whole(text, value, sizeof value);
        break;
    case REAL:
        good = stk_cli_print_real(text, value, sizeof value);
        break;
    case TRUTH:
        if (given != NULL) {
            (void)snprintf(value, sizeof value, "%s", *given == '\0' ? "False" : "True");
        }
        break;
    case BIT:
        good = stk_cli_is_true(text) || stk_cli_is_false(text);
        (void)snprintf(value, sizeof value, "%d", stk_cli_is_true(text));
        break;
    case BITS:
        good = set_bits(row->variable, text, given != NULL, set);
        break;
    case YES:
        (void)snprintf(value, sizeof value, "true");
        break;
    case ONE:
        (void)snprintf(value, sizeof value, "1");
        break;
    }
    if (!good) {
        static const char *const wanted[] = {[WHOLE] = "a whole number",
                                             [REAL] = "a number",
                                             [BIT] = "true or false",
                                             [BITS] =
                                                 "three of true or false, like true,false,false"};
        return stk_err_set(err, STK_E_USAGE, "--%s: '%s' is not %s", row->name, text,
                           wanted[row->form]);
    }
    if (set && row->form != BITS) {
        (void)setenv(row->variable, value, 1);
    }
    return 0;
}

static bool is_group_set(const choice *c, group g)
{
    switch (g) {
    case EVER:
        return true;
    case COMPILE:
        return !c->deepspeed;
    case DEEPSPEED:
        return c->deepspeed;
    case FSDP:
        return c->many && c->fsdp;
    case MEGATRON:
        return c->many && c->megatron;
    case FP8:
        return c->fp8;
    case PARALLEL:
        return c->parallel;
    case CONTEXT:
        return c->parallel && c->context > 1;
    case SEQUENCES:
        return c->parallel && c->sequences > 1;
    }
    return false;
}

static void add_folder(void)
{
    char cwd[PATH_MAX], path[2 * PATH_MAX];
    const char *before = stk_text_or(getenv("PYTHONPATH"), "");
    if (getcwd(cwd, sizeof cwd) != NULL) {
        (void)snprintf(path, sizeof path, "%s%s%s", before, *before == '\0' ? "" : ":", cwd);
        (void)setenv("PYTHONPATH", path, 1);
    }
}

bool stk_cli_launch_is_truth(const char *name)
{
    for (int i = 0; i < N_ROWS; i++) {
        if (strcmp(rows[i].name, name) == 0) {
            return rows[i].form == TRUTH;
        }
    }
    return false;
}

bool stk_cli_launch_is_accelerate(const stk_cli *cli)
{
    bool found = stk_cli_flag(cli, "cpu") || stk_cli_flag(cli, "multi-gpu") ||
                 stk_cli_flag(cli, "num-processes");
    for (int i = 0; i < N_ROWS && !found; i++) {
        found = stk_cli_flag(cli, rows[i].name);
    }
    return found;
}

bool stk_cli_launch_wants_devices(const stk_cli *cli)
{
    return !stk_cli_flag(cli, "cpu") &&
           (stk_cli_flag(cli, "multi-gpu") || stk_cli_flag(cli, "use-deepspeed") ||
            stk_cli_flag(cli, "use-fsdp") || stk_cli_flag(cli, "use-megatron-lm"));
}

/* What accelerate refuses, and why. */
static int check_choice(const stk_cli *cli, const choice *c, uint32_t world, stk_err *err)
{
    static const char *const lone[] = {"cpu", "multi-gpu", "use-deepspeed", "use-fsdp"};
    const char *first = NULL;
    for (size_t i = 0; i < sizeof lone / sizeof *lone; i++) {
        if (stk_cli_flag(cli, lone[i]) && first != NULL) {
            return stk_err_set(err, STK_E_USAGE, "--%s and --%s exclude each other: leave one out",
                               first, lone[i]);
        }
        if (stk_cli_flag(cli, lone[i])) {
            first = lone[i];
        }
    }
    if (stk_cli_flag(cli, "multi-gpu") && stk_cli_flag(cli, "num-processes") && world < 2) {
        return stk_err_set(err, STK_E_USAGE, "--multi-gpu needs --num-processes of at least 2");
    }
    const char *version = stk_text_or(stk_cli_value(cli, "fsdp-version"), "1");
    if (c->parallel && (!c->fsdp || strcmp(version, "2") != 0)) {
        return stk_err_set(err, STK_E_USAGE,
                           "--use-parallelism-config needs --use-fsdp --fsdp-version 2");
    }
    return 0;
}

int stk_cli_launch_accelerate(const stk_cli *cli, uint32_t world, stk_err *err)
{
    choice c = {.cpu = stk_cli_flag(cli, "cpu"),
                .deepspeed = stk_cli_flag(cli, "use-deepspeed"),
                .fsdp = stk_cli_flag(cli, "use-fsdp"),
                .megatron = stk_cli_flag(cli, "use-megatron-lm"),
                .parallel = stk_cli_flag(cli, "use-parallelism-config"),
                .fp8 = strcmp(stk_text_or(stk_cli_value(cli, "mixed-precision"), ""), "fp8") == 0};
    STK_TRY(check_choice(cli, &c, world, err));
    STK_TRY(stk_cli_number(cli, "parallelism-config-cp-size", 1, INT_MAX, &c.context, err));
    STK_TRY(stk_cli_number(cli, "parallelism-config-sp-size", 1, INT_MAX, &c.sequences, err));
    c.many = !c.cpu && (world > 1 || stk_cli_launch_wants_devices(cli));
    for (int i = 0; i < N_ROWS; i++) {
        const char *value = stk_cli_value(cli, rows[i].name);
        if (value != NULL) {
            STK_TRY(stk_cli_launch_check_value(rows[i].name, value, rows[i].values, NULL, err));
        }
        STK_TRY(take_row(cli, &rows[i], is_group_set(&c, rows[i].group), err));
    }
    if (c.deepspeed) {
        (void)setenv("ACCELERATE_CONFIG_DS_FIELDS",
                     stk_text_or(stk_cli_value(cli, STK_CLI_DS_FIELDS), ""), 1);
        add_folder(); /* from which deepspeed imports */
    } else if (!c.many) {
        static const char *const words[] = {"False", "True"};
        (void)setenv("ACCELERATE_USE_CPU", words[c.cpu], 1);
    }
    if (c.cpu) {
        (void)setenv("KMP_AFFINITY", "granularity=fine,compact,1,0", 1);
        (void)setenv("KMP_BLOCKTIME", "1", 1);
    }
    return 0;
}

void stk_cli_launch_mask(const stk_cli *cli)
{
    const char *ids = stk_cli_value(cli, "gpu-ids");
    if (ids != NULL && strcmp(ids, "all") != 0) {
        (void)setenv("CUDA_VISIBLE_DEVICES", ids, 1);
    }
}
