/* One output of a task → an artifact in the store, and what is said of it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/json.h"
#include "base/limits.h"
#include "base/text.h"
#include "run/exec/core/exec_cache.h"
#include "run/exec/core/exec_end.h"
#include "run/exec/core/exec_event.h"
#include "run/exec/core/exec_state.h"
#include "run/exec/core/exec_sum.h"
#include "run/exec/grown/exec_grow.h"
#include "run/exec/place/exec_place.h"
#include "sys/file.h"

static const char *fallback(const char *a, const char *b)
{
    return stk_text_or(a, b);
}

static void add_tags(stk_buf *buf, const stk_result_output *r, const stk_output *declared)
{
    uint32_t n = 0;
    stk_buf_text(buf, ",\"tags\":[");
    for (uint32_t i = 0; declared != NULL && i < declared->n_tags; i++) {
        stk_buf_text(buf, n++ > 0 ? "," : "");
        stk_buf_json(buf, declared->tags[i]);
    }
    for (uint32_t i = 0; r != NULL && i < r->n_tags; i++) {
        stk_buf_text(buf, n++ > 0 ? "," : "");
        stk_buf_json(buf, r->tags[i]);
    }
    stk_buf_char(buf, ']');
}

/* The ref of a stored output (tbl/events.def), in `arena`. `value`: JSON to pass by value as well,
 * or NULL. */
static const char *ref_json(const stk_artifact *a, const stk_result_output *r,
                            const stk_output *declared, const char *format, const char *value,
                            stk_arena *arena)
{
    STK_BUF_AUTO buf = STK_BUF_INIT(STK_LIMIT_RESULT_BYTES);
    const char *type = fallback(r != NULL ? r->type : NULL,
                                fallback(declared != NULL ? declared->type : NULL, format));
    stk_buf_printf(&buf, "{\"digest\":\"%s\",\"size\":%lld,\"format\":", a->digest,
                   (long long)a->size);
    stk_buf_json(&buf, format);
    stk_buf_text(&buf, ",\"type\":");
    stk_buf_json(&buf, type);
    stk_buf_text(&buf, ",\"meta\":");
    stk_buf_text(&buf, r != NULL && r->meta != NULL ? r->meta : "{}");
    if (value != NULL) {
        stk_buf_text(&buf, ",\"value\":");
        stk_buf_text(&buf, value);
    }
    if ((declared != NULL && declared->n_tags > 0) || (r != NULL && r->n_tags > 0)) {
        add_tags(&buf, r, declared);
    }
    if (r != NULL && r->metadata != NULL) {
        stk_buf_text(&buf, ",\"metadata\":");
        stk_buf_text(&buf, r->metadata);
    }
    if (r != NULL && r->artifact_name != NULL) {
        stk_buf_text(&buf, ",\"name\":");
        stk_buf_json(&buf, r->artifact_name);
        if (r->artifact_version != NULL) {
            stk_buf_text(&buf, ",\"version\":");
            stk_buf_json(&buf, r->artifact_version);
        }
    }
    stk_buf_char(&buf, '}');
    return buf.failed ? NULL : stk_arena_dup(arena, buf.data);
}

/* A small file whose text is JSON is also passed by value. NULL when it isn't. */
static const char *small_json(const char *path, int64_t size, size_t most, stk_arena *arena)
{
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    if (size > (int64_t)most || stk_file_read_untrusted(path, most, &text, &len, NULL) < 0) {
        return NULL;
    }
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *doc = stk_json_readn(scratch, text, len);
    return doc == NULL || stk_json_not_kept(doc, NULL) != NULL ? NULL
                                                               : stk_json_dump_in(doc, arena);
}

/* Every folder between the attempt's and the output must be one: a link would lead to files that
 * aren't the task's, and they would be moved into the store. */
static int check_folders(const exec_ending *e, const char *name, char *path, stk_err *err)
{
    struct stat st;
    for (char *slash = strchr(path + strlen(e->dir) + 1, '/'); slash != NULL;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        bool is_link = lstat(path, &st) == 0 && S_ISLNK(st.st_mode);
        int rc = !is_link ? 0
                          : stk_err_set(err, STK_E_PROTOCOL,
                                        "output '%s' is behind a symbolic link, %s; write it into "
                                        "$STOKER_OUTPUT itself",
                                        name, path);
        *slash = '/';
        STK_TRY(rc);
    }
    return 0;
}

/* An artifact that is in the store is the task's output. */
static int name_output(stk_exec *x, const exec_ending *e, const stk_result_output *r,
                       const stk_output *declared, const stk_artifact *artifact, const char *format,
                       const char *value, exec_ref *ret_ref, stk_err *err)
{
    const char *name = r != NULL ? r->name : declared->name;
    if (r != NULL && r->artifact_version != NULL) {
        int rc = stk_store_check_name(x->config.store, r->artifact_name, r->artifact_version,
                                      artifact->digest, err);
        STK_TRY(rc);
    }
    ret_ref->digest = stk_arena_dup(x->arena, artifact->digest);
    ret_ref->json = ref_json(artifact, r, declared, format, value, x->arena);
    if (ret_ref->digest == NULL || ret_ref->json == NULL) {
        return stk_err_nomem(err);
    }
    stk_ref_row row = {.digest = ret_ref->digest,
                       .task = e->task,
                       .output = stk_arena_dup(x->arena, name),
                       .step = e->step->name,
                       .ref = ret_ref->json,
                       .name = r != NULL ? stk_arena_dup(x->arena, r->artifact_name) : NULL,
                       .version = r != NULL ? stk_arena_dup(x->arena, r->artifact_version) : NULL};
    return stk_exec_push_ref(x, &row, err);
}

/* Made elsewhere: the share has it, and the bytes come here when something here reads them. */
static int publish_absent(stk_exec *x, const exec_ending *e, const stk_result_output *r,
                          const stk_output *declared, exec_ref *ret_ref, stk_err *err)
{
    stk_artifact artifact = {.size = r->size};
    const char *path = NULL;
    const char *format = r->format != NULL                            ? r->format
                         : declared != NULL && declared->type != NULL ? declared->type
                                                                      : "file";
    memcpy(artifact.digest, r->digest, sizeof artifact.digest);
    int rc = r->size >= 0 ? stk_store_add_absent(x->config.store, r->digest, r->size, false, err)
                          : stk_store_artifact(x->config.store, r->digest, x->scratch, &path,
                                               &artifact.size, err);
    STK_TRY(rc);
    return name_output(x, e, r, declared, &artifact, format, NULL, ret_ref, err);
}

/* The path of an output → an artifact. Its content is summed whatever digest the step claims for
 * it: the claim is the step's word, and a wrong one is its fault. */
static int take_path(stk_exec *x, const stk_result_output *r, const char *name, const char *path,
                     stk_artifact *ret, stk_err *err)
{
    int rc = stk_exec_sum_take(x, path, NULL, ret, err);
    if (rc == 0 && r != NULL && r->digest != NULL && strcmp(r->digest, ret->digest) != 0) {
        stk_err_set(err, STK_E_PROTOCOL,
                    "output '%s' claims digest %.12s… in result.json, but its content has %.12s…",
                    name, r->digest, ret->digest);
        stk_err_hint(err, "leave 'digest' out: Stoker sums what a step wrote");
        return STK_E_PROTOCOL;
    }
    return rc;
}

static char *output_path(stk_exec *x, const exec_ending *e, const stk_result_output *r,
                         const stk_output *declared)
{
    return stk_arena_printf(x->scratch, "%s/%s%s", e->dir, r != NULL ? "" : "out/",
                            r != NULL ? r->path : declared->name);
}

/* What is behind a link is refused later, and not read before. */
static int ask(stk_exec *x, const exec_ending *e, const stk_result_output *r,
               const stk_output *declared, stk_err *err)
{
    stk_store *store = x->config.store;
    bool is_file = r == NULL || (r->value == NULL && r->artifact == NULL && r->path != NULL);
    char *path = is_file ? output_path(x, e, r, declared) : NULL;
    stk_store_work *work;
    stk_err ignored;
    if (path == NULL) {
        return is_file ? stk_err_nomem(err) : 0;
    }
    if (check_folders(e, "", path, &ignored) < 0 ||
        !stk_exec_sum_is_long(x->sum, store, EXEC_SUM_OUTPUT, path, NULL)) {
        return 0;
    }
    int rc = stk_exec_sum_ask(x->sum, store, EXEC_SUM_OUTPUT, path, NULL, &work, &ignored);
    return rc == STK_E_NOMEM ? stk_err_nomem(err) : 0; /* told when it is published */
}

static int ask_part(stk_exec *x, const exec_ending *e, stk_err *err)
{
    const stk_step *step = e->step;
    int rc = 0;
    for (uint32_t i = 0; i < step->n_outputs && rc == 0; i++) {
        if (stk_exec_find_result(e, step->outputs[i].name) == NULL && step->python == NULL) {
            rc = ask(x, e, NULL, &step->outputs[i], err);
        }
    }
    for (uint32_t i = 0; e->has_result && i < e->result.n_outputs && rc == 0; i++) {
        rc = ask(x, e, &e->result.outputs[i], NULL, err);
    }
    return rc == 0 && e->has_result && e->result.next_items != NULL
               ? ask(x, e, e->result.next_items, NULL, err)
               : rc;
}

int stk_exec_publish_ask(stk_exec *x, const exec_ending *e, stk_err *err)
{
    int rc = ask_part(x, e, err);
    uint32_t ranks = x->graph.grow == NULL ? 0 : stk_exec_ranks(x, e->task);
    for (uint32_t i = 1; i < ranks && rc == 0; i++) {
        exec_ending of_rank = *e;
        stk_err ignored;
        of_rank.has_result = false;
        of_rank.dir = stk_arena_printf(x->scratch, "%s/rank-%u", e->dir, i);
        rc = of_rank.dir == NULL ? stk_err_nomem(err) : 0;
        if (rc == 0 && stk_exec_read_result(x, &of_rank, &ignored) == 0) {
            rc = ask_part(x, &of_rank, err);
        }
    }
    return rc;
}

int stk_exec_publish(stk_exec *x, const exec_ending *e, const stk_result_output *r,
                     const stk_output *declared, exec_ref *ret_ref, stk_err *err)
{
    const char *name = r != NULL ? r->name : declared->name;
    size_t most = x->graph.grow == NULL ? STK_LIMIT_INLINE_BYTES : STK_LIMIT_INLINE_GROWN;
    stk_artifact artifact;
    const char *value = NULL;
    const char *format = r != NULL && r->format != NULL               ? r->format
                         : declared != NULL && declared->type != NULL ? declared->type
                                                                      : NULL;
    int rc;
    if (r != NULL && r->artifact != NULL) {
        return stk_err_set(err, STK_E_PROTOCOL,
                           "output '%s' names artifact %.12s…: only a step of a graph that grows "
                           "passes on what its inputs have; write the content, or make it a value",
                           name, r->artifact);
    }
    if (r != NULL && r->value != NULL) {
        value = r->value;
        format = "json";
        rc = stk_store_add_bytes(x->config.store, value, strlen(value), &artifact, err);
        if (strlen(value) > most) {
            value = NULL;
        }
    } else {
        char *path = output_path(x, e, r, declared);
        struct stat st;
        STK_TRY(stk_err_if_null(path, err));
        rc = check_folders(e, name, path, err);
        STK_TRY(rc);
        if (lstat(path, &st) < 0 && errno == ENOENT && r != NULL && r->digest != NULL &&
            stk_exec_is_away(x, e->task)) {
            return publish_absent(x, e, r, declared, ret_ref, err);
        }
        if (lstat(path, &st) < 0) {
            return stk_err_set(err, STK_E_NOT_FOUND, "output '%s' was not written: there is no %s",
                               name, path);
        }
        if (format == NULL) {
            format = S_ISDIR(st.st_mode) ? "dir" : "file";
        }
        value = strcmp(format, "json") == 0 ? small_json(path, st.st_size, most, x->scratch) : NULL;
        rc = take_path(x, r, name, path, &artifact, err);
    }
    STK_TRY(rc);
    return name_output(x, e, r, declared, &artifact, format, value, ret_ref, err);
}

const stk_result_output *stk_exec_find_result(const exec_ending *e, const char *name)
{
    for (uint32_t i = 0; e->has_result && i < e->result.n_outputs; i++) {
        if (strcmp(e->result.outputs[i].name, name) == 0) {
            return &e->result.outputs[i];
        }
    }
    return NULL;
}

bool stk_exec_declares(const stk_step *step, const char *name)
{
    for (uint32_t i = 0; i < step->n_outputs; i++) {
        if (strcmp(step->outputs[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}
