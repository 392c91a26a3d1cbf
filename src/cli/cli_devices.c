/* `stoker devices`: hours that devices were held, busy and wasted. */
#include <stdio.h>
#include <string.h>
#include <sys/param.h>
#include <unistd.h>

#include "base/text.h"
#include "base/units.h"
#include "cli/cli_open.h"
#include "cli/cli_read.h"
#include "host/runner/runner_live.h"
#include "show/hours.h"
#include "sys/clock.h"
#include "sys/file.h"

enum { STORES_MOST = 200 };

typedef struct store_list {
    const char *paths[STORES_MOST];
    uint32_t n;
    stk_arena *arena;
} store_list;

static void add_path(store_list *list, const char *path)
{
    STK_TEXT_AUTO absolute = stk_file_absolute(path);
    for (uint32_t i = 0; absolute != NULL && i < list->n; i++) {
        if (strcmp(list->paths[i], absolute) == 0) {
            return;
        }
    }
    if (absolute != NULL && list->n < STORES_MOST) {
        list->paths[list->n] = stk_arena_dup(list->arena, absolute);
        list->n += list->paths[list->n] != NULL;
    }
}

/* A store, or a folder with one. */
static void add_folder(store_list *list, const char *folder)
{
    const char *inside = stk_arena_printf(list->arena, "%s/.stoker", folder);
    if (inside != NULL && access(inside, F_OK) == 0) {
        add_path(list, inside);
    } else {
        add_path(list, folder);
    }
}

/* The stores of what runs on this host now. */
static void add_live(store_list *list)
{
    stk_live_task *tasks = NULL;
    uint32_t n = 0;
    if (stk_live_tasks(list->arena, &tasks, &n, NULL) < 0) {
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        const char *end = strstr(tasks[i].dir, "/runs/");
        if (end != NULL) {
            add_path(list, stk_text_or(stk_arena_printf(list->arena, "%.*s",
                                                        (int)(end - tasks[i].dir), tasks[i].dir),
                                       ""));
        }
    }
}

static int add_store(const char *path, stk_hours *hours, stk_err *err)
{
    STK_STORE_AUTO store = NULL;
    STK_COST_AUTO cost = NULL;
    STK_TRY(stk_store_open(path, STK_STORE_READONLY, &store, err));
    stk_cli_prices(store, &cost);
    return stk_hours_add(hours, store, cost, err);
}

/* Stores that are named must be there; of others those that can't be read are told. */
static int add_stores(const stk_cli *cli, stk_hours *hours, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    store_list list = {.arena = arena};
    uint32_t n_named = (uint32_t)stk_cli_n_args(cli);
    STK_TEXT_AUTO own = NULL;
    for (uint32_t i = 0; i < n_named; i++) {
        add_folder(&list, stk_cli_arg(cli, (int)i));
    }
    n_named = list.n;
    if (n_named == 0) {
        STK_TRY(stk_store_find(".", STK_STORE_READONLY, &own, err));
        add_path(&list, own);
        n_named = list.n;
        add_live(&list);
    }
    for (uint32_t i = 0; i < list.n; i++) {
        stk_err why = {0};
        int rc = add_store(list.paths[i], hours, &why);
        if (rc < 0 && i < n_named) {
            *err = why;
            return rc;
        }
        if (rc < 0) {
            (void)fprintf(stderr, "stoker: left out: %s\n", why.text);
        }
    }
    return 0;
}

static int run_devices(const stk_cli *cli, stk_buf *out, stk_err *err)
{
    STK_HOURS_AUTO hours = NULL;
    STK_BUF_AUTO html = STK_BUF_INIT(1u << 28);
    int64_t since_ms = 30 * (int64_t)86400000, now_ms = stk_clock_wall_ms(&stk_clock_real);
    const char *since = stk_cli_value(cli, "since");
    if (since != NULL && stk_units_parse_duration(since, &since_ms, NULL) < 0) {
        return stk_cli_usage(cli, err, "--since %s is not a time, as 12h or 7d", since);
    }
    STK_TRY(stk_hours_new(MAX(now_ms - since_ms, 0), &hours, err));
    STK_TRY(add_stores(cli, hours, err));
    if (stk_cli_wants_page(cli)) {
        STK_TRY(stk_hours_page(hours, &html, err));
        return stk_cli_put_page(cli, &html, out, err);
    }
    if (stk_cli_json(cli)) {
        return stk_hours_json(hours, out, err);
    }
    stk_style style = stk_cli_style(stdout);
    stk_hours_text(hours, &style, out);
    return 0;
}

static const stk_option options[] = {
    {"since", 's', "TIME", "what ended in this time before now, as 12h (default 30d)"},
    STK_CLI_PAGE_OPTIONS,
    {NULL}};

const stk_command stk_cmd_devices = {
    .name = "devices",
    .summary = "hours that devices were held, busy and wasted",
    .usage = "[options] [STORE...]",
    .text = "By day, user, pipeline, kind of device and store, with the energy where devices tell "
            "it, and the cost where `prices` of stoker.yaml say what an hour of a device costs. A "
            "share of a device counts as its part of the memory; a task over midnight counts "
            "on both days. Wasted is what was held without being busy. STORE is a store's folder "
            "or one that has a .stoker; without it, the store of this folder and those of the "
            "tasks that run on this host now. 'stoker gpus' shows the devices at this moment.",
    .options = options,
    .max_args = -1,
    .run = run_devices};
