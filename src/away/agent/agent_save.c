/* end.json: the outcome, and the files of the attempt directory. Those that are large are objects
 * of their own, put before it. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "away/agent/agent_private.h"
#include "base/failpoint.h"
#include "sys/dir.h"
#include "sys/file.h"

typedef struct saver {
    agent *a;
    stk_arena *arena; /* of this try */
    stk_remote_file *files;
    uint32_t n, cap;
    int64_t inlined;
} saver;

/* What the engine has already, and what is the program's own. */
static bool is_left_out(const char *name)
{
    static const char *const names[] = {"in", "out", "tmp", "task.json"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(name, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

static int save_file(saver *s, const stk_dir_seen *e, stk_err *err)
{
    int64_t size = e->st->st_size;
    stk_remote_file *files = stk_arena_grow(s->arena, s->files, s->n, sizeof *files, &s->cap);
    STK_TRY(stk_err_if_null(files, err));
    s->files = files;
    stk_remote_file *f = &files[s->n];
    *f = (stk_remote_file){.name = stk_arena_dup(s->arena, e->below), .size = size};
    STK_TRY(stk_err_if_null(f->name, err));
    if (size <= AGENT_INLINE && s->inlined + size <= AGENT_INLINE_ALL) {
        STK_TEXT_AUTO text = NULL;
        size_t len = 0;
        STK_TRY(stk_file_read(e->path, AGENT_INLINE * 2, &text, &len, err));
        f->data = stk_arena_dupn(s->arena, text, len);
        f->size = (int64_t)len;
        s->inlined += (int64_t)len;
        STK_TRY(stk_err_if_null(f->data, err));
    } else {
        char of_node[16] = "";
        if (s->a->node > 0) {
            (void)snprintf(of_node, sizeof of_node, "-%u", s->a->node);
        }
        f->key = stk_arena_printf(s->arena, "%s/files%s/%s", s->a->key, of_node, e->below);
        STK_TRY(stk_share_put_file(s->a->share, f->key, e->path, err));
    }
    s->n++;
    return 0;
}

static int save_entry(void *arg, const stk_dir_seen *e, stk_err *err)
{
    saver *s = arg;
    bool is_top = strchr(e->below, '/') == NULL;
    if (S_ISDIR(e->st->st_mode)) { /* left out of ranks too; and what its own user closed to all */
        return is_left_out(e->name) || access(e->path, R_OK | X_OK) < 0 ? STK_DIR_SKIP : 0;
    }
    if (!S_ISREG(e->st->st_mode) || s->n >= AGENT_FILES || (is_top && is_left_out(e->name))) {
        return 0;
    }
    int rc = save_file(s, e, err);
    return stk_err_but(rc, STK_E_NOT_FOUND); /* it vanished: a pulse, a lock */
}

int stk_agent_save(agent *a, stk_err *err)
{
    STK_BUF_AUTO text = STK_BUF_INIT(AGENT_END_BYTES);
    STK_ARENA_AUTO arena = stk_arena_new(0);
    saver s = {.a = a, .arena = arena};
    char host[256] = "", name[32] = "end.json";
    (void)gethostname(host, sizeof host - 1);
    if (a->node > 0) {
        (void)snprintf(name, sizeof name, "end-%u.json", a->node);
    }
    if (stk_file_exists(a->order.dir)) {
        STK_TRY(stk_dir_walk(a->order.dir, save_entry, &s, err));
    }
    stk_remote_end end = {.host = host,
                          .node = a->node,
                          .started_ms = a->started_ms,
                          .ended_ms = a->ended_ms,
                          .outcome = a->outcome,
                          .granted = a->granted,
                          .files = s.files,
                          .n_files = s.n,
                          .has_live = a->live.has_sent};
    STK_TRY(stk_remote_end_write(&end, &text, err));
    STK_FAILPOINT("agent.save.files");
    return stk_share_put(a->share, stk_agent_object(a, name), text.data, text.len, false, err);
}
