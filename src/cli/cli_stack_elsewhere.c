/* Checks whether a stack of other machines can be used. */
#include <stdlib.h>
#include <string.h>

#include "away/aws/aws.h"
#include "away/share/share.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/cli_run.h"
#include "cli/cli_stack.h"
#include "image/stack/stack_metaflow.h"
#include "run/run_elsewhere.h"

static void say_inherited(const stk_stack *stack, stk_arena *arena, stk_cli_finding say, void *arg)
{
    stk_err err = {0};
    if (stk_metaflow_check(&err) < 0) {
        say(arg, false, stk_arena_printf(arena, "Metaflow's settings can't be read: %s", err.text));
    }
    for (uint32_t i = 0; i < stack->n_inherited; i++) {
        const stk_inherited *one = &stack->inherited[i];
        const char *from = one->variable;
        if (strcmp(one->from, one->variable) != 0) {
            from = stk_arena_printf(arena, "%s in %s", one->variable, one->from);
        }
        say(arg, true, stk_arena_printf(arena, "%s is %s, from %s", one->name, one->value, from));
    }
}

static void say_error(stk_cli_finding say, void *arg, const char *about, const stk_err *err,
                      stk_arena *arena)
{
    char whole[1400];
    const char *text = stk_err_format(err, whole, (int)sizeof whole);
    for (const char *const *of = (const char *const[]){"stack '", "step 'check'", NULL};
         *of != NULL; of++) { /* the command is about this stack only */
        const char *end = strncmp(text, *of, strlen(*of)) == 0 ? strstr(text, "': ") : NULL;
        if (end != NULL) {
            text = end + 3;
        }
    }
    const char *said =
        stk_arena_printf(arena, "%s%s%s", about, stk_text_when(*about != '\0', ": "), text);
    say(arg, false, stk_text_or(said, text));
}

/* The S3 service's address if only this machine reaches it, else NULL. */
static const char *own_address(const stk_stack *stack, stk_arena *arena)
{
    static const char *const own[] = {"127.", "localhost", "[::1]", "0.0.0.0"};
    char url[512];
    STK_AWS_AUTO aws = NULL;
    if (strncmp(stack->store, "s3://", 5) != 0 || stk_aws_open(NULL, &aws, NULL) < 0 ||
        stk_aws_endpoint(aws, "s3", url, sizeof url, NULL, NULL) < 0) {
        return NULL;
    }
    const char *host = strstr(url, "://") + 3;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        if (strncmp(host, own[i], strlen(own[i])) == 0) {
            return stk_arena_dup(arena, url);
        }
    }
    return NULL;
}

/* What the other machines need to reach a store that this one reaches, or "". */
static const char *needed_there(const stk_stack *stack, stk_arena *arena)
{
    bool is_folder = stack->store[0] == '/';
    bool is_role = stack->options != NULL && strstr(stack->options, "\"service_account") != NULL;
    const char *key = stk_text_if_any(getenv("AWS_ACCESS_KEY_ID"));
    const char *url = own_address(stack, arena), *address = "", *role = "";
    if (is_folder && stack->store_volume == NULL) {
        return " from here; its machines must have the same folder there";
    }
    if (url != NULL) {
        address = stk_arena_printf(arena,
                                   "; other machines can't reach %s: give AWS_ENDPOINT_URL an "
                                   "address that they reach",
                                   url);
    }
    if (!is_folder && stack->kind == STK_PLACE_KUBERNETES && !is_role && key == NULL) {
        role = "; its pods need a role of their own for it (service_account, or their nodes'), or "
               "your keys: Stoker passes on those in the environment (AWS_ACCESS_KEY_ID …), not "
               "those in files";
    }
    if (url == NULL && *role == '\0') {
        return "";
    }
    return stk_text_or(stk_arena_printf(arena, " from here%s%s", stk_text_or(address, ""), role),
                       "");
}

static void check_store(const stk_stack *stack, stk_arena *arena, stk_cli_finding say, void *arg)
{
    stk_share *share = NULL;
    stk_err err = {0};
    if (stack->store == NULL) {
        say(arg, false,
            stk_arena_printf(arena,
                             "no store that its machines share with this one; %s to the stack, or "
                             "set STOKER_SHARE",
                             stk_place_store_way(stack->kind)));
        return;
    }
    int rc = stk_stack_check_store(stack, &err);
    if (rc == 0) {
        rc = stk_share_open(stack->store, &share, &err);
    }
    if (rc == 0) {
        rc = stk_share_check(share, &err);
    }
    stk_share_close(share);
    if (rc < 0) {
        say_error(say, arg, "store", &err, arena);
    } else {
        say(arg, true,
            stk_arena_printf(arena, "store %s can be written, read and listed%s%s%s", stack->store,
                             needed_there(stack, arena),
                             stk_text_when(stack->store_from != NULL, "; it is from "),
                             stk_text_or(stack->store_from, "")));
    }
}

/* Makes a job's documents from the stack's options alone, and with those of each pool. */
static void check_options(const stk_stack *stack, const stk_driver_kind *kind, stk_arena *arena,
                          stk_cli_finding say, void *arg)
{
    static const char *const argv[] = {"true", NULL}, *const none[] = {NULL};
    uint32_t n_bad = 0;
    for (uint32_t i = 0; i <= stack->n_pools; i++) {
        const stk_pool *pool = i == 0 ? NULL : &stack->pools[i - 1];
        const char *about =
            pool == NULL ? "options" : stk_arena_printf(arena, "pool '%s'", pool->name);
        stk_resources holds = pool != NULL ? pool->holds : STK_RESOURCES_UNSET;
        holds.base.gpu_memory_bytes = -1; /* `holds` has a whole device's memory, not a share */
        STK_ARENA_AUTO scratch = stk_arena_new(0);
        const stk_json *said = stk_json_read(scratch, stack->options);
        stk_json all = said != NULL ? *said : stk_json_of_map();
        (void)stk_json_update(scratch, &all,
                              pool == NULL ? NULL : stk_json_read(scratch, pool->options));
        if (stack->kind == STK_PLACE_BATCH && stk_json_get(&all, "queue") == NULL) {
            /* each step may name its own */
            (void)stk_json_set(scratch, &all, "queue", stk_json_of_text("(a step's)"));
        }
        const char *text = stk_json_dump_in(&all, scratch);
        stk_driver_config config;
        const char **documents = NULL;
        uint32_t n = 0;
        stk_err err = {0};
        stk_run_driver_config(stack, "check", &config);
        const stk_remote_job job = {.run = "check",
                                    .pipeline = "check",
                                    .step = "check",
                                    .attempt = 1,
                                    .name = "s-check",
                                    .image = "image",
                                    .resources = &holds,
                                    .options = stk_text_or(text, "{}"),
                                    .argv = argv,
                                    .env = none,
                                    .folders = none,
                                    .carry = stack->carry,
                                    .carry_at = "/stoker",
                                    .nodes = 1};
        if (kind->manifest(&config, &job, arena, &documents, &n, &err) < 0) {
            say_error(say, arg, stk_text_or(about, ""), &err, arena);
            n_bad++;
        }
    }
    if (n_bad == 0) {
        say(arg, true, "its options are known");
    }
}

void stk_cli_stack_check_elsewhere(const stk_stack *stack, stk_arena *arena, stk_cli_finding say,
                                   void *arg)
{
    const stk_driver_kind *kind = stk_cli_driver(stk_place_word(stack->kind));
    stk_driver_config config;
    stk_err err = {0};
    (void)setenv("AWS_MAX_ATTEMPTS", "2", 0); /* a person waits for the answer */
    stk_run_driver_config(stack, "check", &config);
    if (kind == NULL) {
        say(arg, false,
            stk_arena_printf(arena, "this Stoker has no driver for %s",
                             stk_place_word(stack->kind)));
        return;
    }
    say_inherited(stack, arena, say, arg);
    check_options(stack, kind, arena, say, arg);
    check_store(stack, arena, say, arg);
    if (kind->check(&config, say, arg, &err) < 0) {
        say_error(say, arg, "", &err, arena);
    }
}
