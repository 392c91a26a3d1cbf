#include "run/exec/core/exec_reads.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/digest.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/map.h"
#include "base/text.h"
#include "run/exec/core/exec_loop.h"
#include "run/exec/place/exec_place.h"
#include "sys/dir.h"
#include "sys/file.h"

enum {
    RECORDS_MOST = 16 << 20,
    SUM_ALL = 16 << 20 /* of one step */
};

/* --- what doesn't count --- */

static bool begins_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

/* Our store; _worker/reads.py leaves out what else doesn't count. */
static bool is_in_store(const stk_exec *x, const char *path)
{
    const char *store = stk_store_path(x->config.store);
    size_t n = strlen(store);
    return strncmp(path, store, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

/* Variables that Stoker sets, that the cache key has already, or that tell terminals and sessions
 * apart. */
static bool is_variable_left_out(const stk_settings *s, const char *name)
{
    static const char *const starts[] = {"STOKER_", "PYTHON", "LD_", "SSH_", "XDG_SESSION", "TMUX"};
    static const char *const names[] = {
        "TERM",
        "COLORTERM",
        "NO_COLOR",
        "FORCE_COLOR",
        "CLICOLOR",
        "CLICOLOR_FORCE",
        "COLUMNS",
        "LINES",
        "PWD",
        "OLDPWD",
        "SHLVL",
        "_",
        "DISPLAY",
        "WAYLAND_DISPLAY",
        "WINDOWID",
        "PYTEST_CURRENT_TEST",
        "CUDA_VISIBLE_DEVICES",
        "NVIDIA_VISIBLE_DEVICES",
        "ROCR_VISIBLE_DEVICES",
        "HIP_VISIBLE_DEVICES",
        "CUDA_DEVICE_ORDER",
#define X(variable) variable,
#include "tbl/threads.def"
#undef X
    };
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        if (begins_with(name, starts[i])) {
            return true;
        }
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(name, names[i]) == 0) {
            return true;
        }
    }
    for (uint32_t i = 0; i < s->n_env; i++) {
        if (strcmp(name, s->env[i].key) == 0) {
            return true;
        }
    }
    for (uint32_t i = 0; i < s->n_secrets; i++) {
        if (strcmp(name, s->secrets[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* --- an attempt's records --- */

typedef struct collector {
    stk_exec *x;
    const stk_settings *settings;
    stk_buf out;      /* the JSON object */
    stk_buf unseen;   /* sentences */
    stk_map known;    /* members of `seen`, and records that were put */
    stk_map written;  /* paths that the step wrote */
    int64_t start_ns; /* of the attempt, by the clock of its files */
    size_t left;      /* bytes that may still be summed */
} collector;

/* The names in the folder that the step wrote: "a/b/". */
static const char *own_names(const collector *c, const char *records, size_t len,
                             const char *folder)
{
    STK_BUF_AUTO names = STK_BUF_INIT(RECORDS_MOST);
    size_t n = strlen(folder);
    for (const char *r = records; r < records + len; r += strlen(r) + 1) {
        if (r[0] == 'w' && strncmp(r + 1, folder, n) == 0 && r[1 + n] == '/' &&
            strchr(r + 2 + n, '/') == NULL && r[2 + n] != '\0') {
            stk_buf_text(&names, r + 2 + n);
            stk_buf_char(&names, '/');
        }
    }
    return stk_text_or(stk_buf_keep(&names, c->x->arena), "");
}

static void add_unseen(collector *c, const char *text)
{
    if (c->unseen.len == 0 || strstr(c->unseen.data, text) == NULL) {
        stk_buf_separate(&c->unseen, "; ");
        stk_buf_text(&c->unseen, text);
    }
}

/* Whether the step had written what it read: not if the file is older than the attempt. */
static bool is_own(const collector *c, const char *path, int64_t mtime_ns)
{
    uint64_t value;
    return stk_map_get(&c->written, path, &value) && (mtime_ns == 0 || mtime_ns >= c->start_ns);
}

/* A file as the step found it: `text` is "SIZE:MTIME:INODE:PATH". */
static void take_file(collector *c, const char *text, bool may_change)
{
    int64_t size = 0, mtime = 0;
    uint64_t inode = 0;
    int n = 0;
    struct stat st;
    uint64_t value;
    char hex[STK_DIGEST_HEX + 1] = "-", member[STK_DIGEST_HEX + 96];
    if (sscanf(text, "%" SCNd64 ":%" SCNd64 ":%" SCNu64 ":%n", &size, &mtime, &inode, &n) != 3 ||
        n == 0) {
        return;
    }
    const char *path = text + n;
    if (is_own(c, path, mtime) || stk_map_get(&c->known, path, &value) || is_in_store(c->x, path)) {
        return;
    }
    bool is_same = stat(path, &st) == 0 && st.st_size == size && st.st_ino == inode &&
                   (mtime == 0 || stk_reads_mtime_ns(&st) == mtime);
    if (!is_same && may_change) {
        const char *which =
            stk_arena_printf(c->x->arena, "what it read of %s, which it changed", path);
        add_unseen(c, stk_text_or(which, "files that it changed"));
        return;
    }
    if (is_same && (size_t)size <= c->left) {
        stk_reads_sum_file(path, size, hex);
        c->left -= (size_t)size;
    }
    (void)snprintf(member, sizeof member, "file %" PRId64 " %" PRId64 " %" PRIu64 " %s", size,
                   mtime, inode, hex);
    (void)stk_map_put(&c->known, path, 1);
    stk_json_put_text(&c->out, path, member);
}

/* `text` is "MTIME:INODE:PATH". */
static void take_folder(collector *c, const char *text, const char *records, size_t len)
{
    int64_t mtime = 0;
    uint64_t inode = 0, value;
    int n = 0;
    struct stat st;
    char hex[STK_DIGEST_HEX + 1] = "-";
    if (sscanf(text, "%" SCNd64 ":%" SCNu64 ":%n", &mtime, &inode, &n) != 2 || n == 0) {
        return;
    }
    STK_BUF_AUTO key = STK_BUF_INIT(1u << 16);
    STK_BUF_AUTO member = STK_BUF_INIT(RECORDS_MOST);
    size_t n_path = strlen(text + n);
    while (n_path > 1 && text[n + (int)n_path - 1] == '/') {
        n_path--;
    }
    stk_buf_add(&key, text + n, n_path);
    const char *path = stk_arena_dup(c->x->arena, stk_text_or(key.data, ""));
    stk_buf_char(&key, '/');
    if (path == NULL || key.failed || is_in_store(c->x, key.data) ||
        stk_map_get(&c->known, key.data, &value)) {
        return;
    }
    const char *own = own_names(c, records, len, path);
    bool is_same = stat(path, &st) == 0 && st.st_ino == inode &&
                   (mtime == 0 || stk_reads_mtime_ns(&st) == mtime);
    if ((is_same || own[0] != '\0') && stk_reads_sum_folder(path, own, hex) < 0) {
        (void)strcpy(hex, "-");
    }
    stk_buf_printf(&member, "folder %" PRId64 " %" PRIu64 " %s %s", is_same ? mtime : 0, inode, hex,
                   own);
    stk_json_put_text(&c->out, key.data, stk_text_or(member.data, ""));
    (void)stk_map_put(&c->known, stk_buf_keep(&key, c->x->arena), 1);
}

static void take_variable(collector *c, const char *name)
{
    char member[STK_DIGEST_HEX + 8];
    uint64_t value;
    const char *key = stk_arena_printf(c->x->arena, "$%s", name);
    if (key == NULL || stk_map_get(&c->known, key, &value) ||
        is_variable_left_out(c->settings, name)) {
        return;
    }
    stk_reads_sum_variable(name, member);
    (void)stk_map_put(&c->known, key, 1);
    stk_json_put_text(&c->out, key, member);
}

static void take_absent(collector *c, const char *path)
{
    uint64_t value;
    if (!stk_map_get(&c->written, path, &value) && !stk_map_get(&c->known, path, &value) &&
        !is_in_store(c->x, path) && !stk_file_exists(path)) {
        (void)stk_map_put(&c->known, path, 1);
        stk_json_put_text(&c->out, path, "absent");
    }
}

static void take_records(collector *c, const char *records, size_t len)
{
    for (const char *r = records; r < records + len; r += strlen(r) + 1) {
        if (r[0] == 'w') {
            (void)stk_map_put(&c->written, r + 1, 1);
        }
    }
    for (const char *r = records; r < records + len; r += strlen(r) + 1) {
        switch (r[0]) {
        case 'f':
        case 'm':
            take_file(c, r + 1, r[0] == 'm');
            break;
        case 'n':
            take_absent(c, r + 1);
            break;
        case 'd':
            take_folder(c, r + 1, records, len);
            break;
        case 'e':
            take_variable(c, r + 1);
            break;
        case 'u':
            add_unseen(c, r + 1);
            break;
        default:
            break;
        }
    }
}

/* Copies the members of `seen` and notes their keys. */
static void take_seen(collector *c, const char *seen)
{
    const stk_json *doc = NULL;
    stk_json_open(&c->out, NULL, '{');
    if (seen == NULL || (doc = stk_json_read(c->x->scratch, seen)) == NULL) {
        return;
    }
    for (uint32_t i = 0; i < stk_json_n_members(doc); i++) {
        const char *key = stk_json_key(doc, i)->text;
        stk_json_put_text(&c->out, key, stk_text_or(stk_json_text(stk_json_value(doc, i)), ""));
        (void)stk_map_put(&c->known, key, 1);
    }
}

/* Names what this kind of step hides, before its own records say more. */
static void add_kind(collector *c, const exec_ending *e)
{
    if (stk_exec_is_away(c->x, e->task)) {
        add_unseen(c, "what it reads on another machine");
    } else if (stk_exec_is_contained(c->x, e->task)) {
        add_unseen(c, "what it reads in its container");
    } else if (e->step->python == NULL) {
        add_unseen(c, "what its programs read, unless they are Python with Stoker's PYTHONPATH");
    }
}

int stk_exec_reads_collect(stk_exec *x, const exec_ending *e, const char *seen,
                           const char **ret_seen, const char **ret_unseen, stk_err *err)
{
    collector c = {.x = x,
                   .settings = e->step->settings,
                   .out = STK_BUF_INIT(STK_LIMIT_RESULT_BYTES),
                   .unseen = STK_BUF_INIT(1u << 16),
                   .left = SUM_ALL};
    STK_TEXT_AUTO records = NULL;
    size_t len = 0;
    struct stat st;
    const char *dir = stk_exec_dir(x, e->task, stk_exec_attempt(x, e->task), x->scratch);
    const char *path = stk_arena_printf(x->scratch, "%s/reads", dir);
    const char *task = stk_arena_printf(x->scratch, "%s/task.json", dir);
    stk_err why = {0};
    *ret_unseen = NULL;
    if (stat(stk_text_or(task, ""), &st) == 0) {
        c.start_ns = stk_reads_mtime_ns(&st);
    }
    take_seen(&c, seen);
    if (e->step->settings->cache.track != STK_TRACK_OFF) {
        add_kind(&c, e);
        int rc = stk_file_read(path, RECORDS_MOST, &records, &len, &why);
        if (rc == 0) {
            take_records(&c, records, len);
        } else if (why.sys != ENOENT) {
            add_unseen(&c, "what it reads, because it reads so much");
        }
    }
    if (c.unseen.len > 0) {
        *ret_unseen = stk_buf_keep(&c.unseen, x->arena);
        stk_json_put_text(&c.out, "?", stk_text_or(*ret_unseen, ""));
    }
    stk_json_close(&c.out, '}');
    *ret_seen = stk_buf_keep(&c.out, x->arena);
    stk_map_done(&c.known);
    stk_map_done(&c.written);
    stk_buf_done(&c.out);
    stk_buf_done(&c.unseen);
    return stk_err_if_null(*ret_seen, err);
}

void stk_exec_reads_env(const stk_exec *x, uint32_t task, const char *dir, exec_env *env)
{
    const stk_step *step = stk_spec_step(x->spec, x->tasks[task].i_step);
    const stk_cache_policy *cache = &step->settings->cache;
    if (!cache->enabled || cache->track == STK_TRACK_OFF || x->tasks[task].key == NULL ||
        env->is_away || stk_exec_is_contained(x, task)) {
        return;
    }
    stk_exec_env_add(env, "STOKER_READS", stk_arena_printf(env->arena, "%s/reads", dir));
    stk_exec_env_add(env, "STOKER_READS_LEFT_OUT",
                     stk_arena_printf(env->arena, "%s/", stk_store_path(x->config.store)));
    if (x->config.front != NULL) { /* for Python programs that it starts */
        const char *before = getenv("PYTHONPATH");
        stk_exec_env_add(env, "PYTHONPATH",
                         stk_arena_printf(env->arena, "%s/_worker/_site%s%s", x->config.front,
                                          stk_text_when(before != NULL, ":"),
                                          stk_text_or(before, "")));
    }
}
