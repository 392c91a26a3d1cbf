/* Which runs a share has, and what each says of itself. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/param.h>

#include "away/remote/remote_log_private.h"
#include "base/text.h"

enum { RUNS = 100000, RUN_ID = 39 };

bool stk_remote_log_is_damage(const stk_err *err)
{
    static const int of_a_file[] = {EACCES, EPERM, ENOTDIR, EISDIR, ENAMETOOLONG, ELOOP, EEXIST};
    int code = err->code;
    bool is_of_a_file = false;
    for (size_t i = 0; i < sizeof of_a_file / sizeof *of_a_file; i++) {
        is_of_a_file = is_of_a_file || err->sys == of_a_file[i];
    }
    return ((code == STK_E_SYS || code == STK_E_ENV) && is_of_a_file) || code == STK_E_PROTOCOL ||
           code == STK_E_SPEC || code == STK_E_VERSION || code == STK_E_LIMIT ||
           code == STK_E_STORE || code == STK_E_USAGE;
}

int stk_remote_run_read(stk_share *share, const char *id, stk_arena *arena, stk_remote_run *ret,
                        stk_err *err)
{
    static const stk_json_limits limits = {64 << 10, 1000, 8};
    STK_BUF_AUTO text = STK_BUF_INIT(64 << 10);
    stk_json doc;
    char key[200];
    (void)snprintf(key, sizeof key, "runs/%s/run.json", id);
    STK_TRY(stk_share_get(share, key, &text, err));
    STK_TRY(stk_json_parse(text.data, text.len, key, &limits, arena, &doc, err));
    *ret = (stk_remote_run){.id = stk_arena_dup(arena, id),
                            .name = stk_json_get_text(&doc, "name"),
                            .pipeline = stk_json_get_text(&doc, "pipeline"),
                            .host = stk_json_get_text(&doc, "host"),
                            .user = stk_json_get_text(&doc, "user"),
                            .stack = stk_json_get_text(&doc, "stack"),
                            .epoch = stk_json_get_whole(&doc, "epoch", 0),
                            .created_ms = stk_json_get_whole(&doc, "at_ms", -1)};
    ret->name = stk_text_or(ret->name, ret->id);
    ret->pipeline = stk_text_or(ret->pipeline, "");
    return stk_err_if_null(ret->id, err);
}

typedef struct listing {
    stk_share *share;
    stk_arena *arena;
    stk_remote_run *runs;
    uint32_t n, cap;
    stk_err *err;
} listing;

static int add_run(void *arg, const char *id)
{
    listing *l = arg;
    if (strlen(id) > RUN_ID) { /* not a run */
        return 0;
    }
    stk_remote_run *runs = stk_arena_grow(l->arena, l->runs, l->n, sizeof *runs, &l->cap);
    STK_TRY(stk_err_if_null(runs, l->err));
    l->runs = runs;
    stk_remote_run *one = &runs[l->n];
    stk_err why = {0};
    int rc = stk_remote_run_read(l->share, id, l->arena, one, &why);
    if (rc < 0 && stk_remote_log_is_damage(&why)) { /* fetching this run reports the error */
        *one = (stk_remote_run){.id = stk_arena_dup(l->arena, id), .pipeline = ""};
        one->name = one->id;
        rc = stk_err_if_null(one->id, &why);
    }
    if (rc == STK_E_NOT_FOUND) { /* a run that just begins has none yet */
        return 0;
    }
    if (rc < 0 && l->err != NULL) {
        *l->err = why;
    }
    STK_TRY(rc);
    l->n++;
    return l->n == RUNS;
}

static int find_runs(stk_share *share, stk_arena *arena, stk_remote_run **ret, uint32_t *ret_n,
                     stk_err *err)
{
    listing l = {.share = share, .arena = arena, .err = err};
    int rc = stk_share_list_folders(share, "runs/", add_run, &l, err);
    STK_TRY(MIN(rc, 0));
    *ret = l.runs;
    *ret_n = l.n;
    return 0;
}

int stk_remote_log_runs(const char *share_url, stk_arena *arena, stk_remote_run **ret,
                        uint32_t *ret_n, stk_err *err)
{
    STK_SHARE_AUTO share = NULL;
    STK_TRY(stk_share_open(share_url, &share, err));
    return find_runs(share, arena, ret, ret_n, err);
}

/* A whole id needs no list. */
int stk_remote_run_find(stk_share *share, const char *text, stk_arena *arena, stk_remote_run *ret,
                        stk_err *err)
{
    stk_remote_run *runs = NULL;
    uint32_t n = 0, n_found = 0;
    if (strchr(text, '/') == NULL) {
        int rc = stk_remote_run_read(share, text, arena, ret, err);
        if (rc != STK_E_NOT_FOUND) {
            return rc;
        }
    }
    STK_TRY(find_runs(share, arena, &runs, &n, err));
    for (uint32_t i = n; i-- > 0;) {
        bool is_name = strcmp(runs[i].name, text) == 0;
        if (is_name || strncmp(runs[i].id, text, strlen(text)) == 0 ||
            (strcmp(text, "latest") == 0 && i + 1 == n)) {
            if (n_found++ == 0) {
                *ret = runs[i];
            }
            if (is_name || strcmp(text, "latest") == 0) {
                return 0; /* the newest run of that name */
            }
        }
    }
    if (n_found == 1) {
        return 0;
    }
    if (n_found == 0) {
        return stk_err_set(err, STK_E_NOT_FOUND, "no run '%s' in %s", text, stk_share_url(share));
    }
    return stk_err_set(err, STK_E_USAGE, "'%s' is the beginning of the ids of %u runs in %s", text,
                       n_found, stk_share_url(share));
}
