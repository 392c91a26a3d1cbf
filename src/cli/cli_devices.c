/* `stoker devices`: hours that devices were held, busy and wasted. */
#include <stdio.h>
#include <string.h>
#include <sys/param.h>
#include <unistd.h>

#include "base/text.h"
#include "base/units.h"
#include "cli/cli_open.h"
#include "cli/cli_read.h"
#include "cli/cli_stores.h"
#include "show/hours.h"
#include "sys/clock.h"
#include "sys/file.h"

static int add_store(const char *path, stk_hours *hours, stk_err *err)
{
    STK_STORE_AUTO store = NULL;
    STK_COST_AUTO cost = NULL;
    STK_TRY(stk_store_open(path, STK_STORE_READONLY, &store, err));
    stk_cli_prices(store, &cost);
    return stk_hours_add(hours, store, cost, err);
}

/* The stores that are named, which must be there; else this folder's, if it has one, and all others
 * of this host that may be read. */
static int add_stores(const stk_cli *cli, stk_hours *hours, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_cli_stores stores = {.arena = arena};
    STK_TEXT_AUTO own = NULL;
    for (int i = 0; i < stk_cli_n_args(cli); i++) {
        stk_cli_stores_add_folder(&stores, stk_cli_arg(cli, i));
    }
    uint32_t n_named = stores.n;
    if (n_named == 0) {
        STK_TRY(stk_store_find(".", STK_STORE_READONLY, &own, err));
        stk_cli_stores_add(&stores, own);
        stk_cli_stores_add_all(&stores);
        n_named = stk_file_exists(own) || stores.n == 1;
    }
    for (uint32_t i = 0; i < stores.n; i++) {
        stk_err why = {0};
        int rc = add_store(stores.paths[i], hours, &why);
        if (rc < 0 && i < n_named) {
            *err = why;
            return rc;
        }
        if (rc < 0 && rc != STK_E_NOT_FOUND) {
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
            "or one that has a .stoker; without it, all stores of this host in which you have run "
            "something, those in folders that you trust ('stoker trust'), and those of the tasks "
            "that run now. 'stoker gpus' shows the devices at this moment.",
    .options = options,
    .max_args = -1,
    .run = run_devices};
