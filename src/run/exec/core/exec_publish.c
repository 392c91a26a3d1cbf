/* Makes one output of a task an artifact in the store, and describes it. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/json.h"
#include "base/limits.h"
#include "base/text.h"
#include "run/exec/core/exec_end.h"
#include "run/exec/core/exec_event.h"
#include "run/exec/core/exec_sum.h"
#include "run/exec/grown/exec_grow.h"
#include "run/exec/place/exec_place.h"
#include "sys/file.h"

/* The ref of a stored output (tbl/events.def), in `arena`. `value`: JSON to pass by value as well,
 * or NULL; `preview`: the digest of what cards show, or NULL. */
static const char *ref_json(const stk_artifact *a, const stk_result_output *r,
                            const stk_output *declared, const char *format, const char *value,
                            const char *preview, stk_arena *arena)
{
    static const stk_result_output no_result;
    static const stk_output not_declared;
    STK_BUF_AUTO buf = STK_BUF_INIT(STK_LIMIT_RESULT_BYTES);
    if (r == NULL) {
        r = &no_result;
    }
    if (declared == NULL) {
        declared = &not_declared;
    }
    stk_json_open(&buf, NULL, '{');
    stk_json_put_text(&buf, "digest", a->digest);
    stk_json_put_whole(&buf, "size", a->size);
    stk_json_put_text(&buf, "format", format);
    stk_json_put_text(&buf, "type", stk_text_or(r->type, stk_text_or(declared->type, format)));
    stk_json_put_raw(&buf, "meta", stk_text_or(r->meta, "{}"));
    stk_json_put_known_raw(&buf, "value", value);
    stk_json_put_known_text(&buf, "preview", preview);
    if (declared->n_tags + r->n_tags > 0) {
        stk_json_open(&buf, "tags", '[');
        for (uint32_t i = 0; i < declared->n_tags; i++) {
            stk_json_put_text(&buf, NULL, declared->tags[i]);
        }
        for (uint32_t i = 0; i < r->n_tags; i++) {
            stk_json_put_text(&buf, NULL, r->tags[i]);
        }
        stk_json_close(&buf, ']');
    }
    stk_json_put_known_raw(&buf, "metadata", r->metadata);
    if (r->artifact_name != NULL) {
        stk_json_put_text(&buf, "name", r->artifact_name);
        stk_json_put_known_text(&buf, "version", r->artifact_version);
    }
    stk_json_close(&buf, '}');
    return stk_buf_keep(&buf, arena);
}

/* Returns the text of a small file that is JSON, which is also passed by value; else NULL. */
static const char *small_json(const char *path, int64_t size, size_t most, stk_arena *arena)
{
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    if (size > (int64_t)most || stk_file_read_untrusted(path, most, &text, &len, NULL) < 0) {
        return NULL;
    }
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *doc = stk_json_readn(scratch, text, len);
    if (doc == NULL || stk_json_not_kept(doc, NULL) != NULL) {
        return NULL;
    }
    return stk_json_dump_in(doc, arena);
}

/* Checks that each part of the path from the attempt's folder to the output is a folder. A link
 * would lead to foreign files, which would be moved to the store. */
static int check_folders(const exec_ending *e, const char *name, char *path, stk_err *err)
{
    struct stat st;
    for (char *slash = strchr(path + strlen(e->dir) + 1, '/'); slash != NULL;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (lstat(path, &st) == 0 && S_ISLNK(st.st_mode)) {
            stk_err_set(err, STK_E_PROTOCOL,
                        "output '%s' is behind a symbolic link, %s; write it into $STOKER_OUTPUT "
                        "itself",
                        name, path);
            *slash = '/';
            return STK_E_PROTOCOL;
        }
        *slash = '/';
    }
    return 0;
}

/* Names an artifact that the store has as the task's output. */
static int name_output(stk_exec *x, const exec_ending *e, const stk_result_output *r,
                       const stk_output *declared, const stk_artifact *artifact, const char *format,
                       const char *value, exec_ref *ret_ref, stk_err *err)
{
    if (r != NULL && r->artifact_version != NULL) {
        STK_TRY(stk_store_check_name(x->config.store, r->artifact_name, r->artifact_version,
                                     artifact->digest, err));
    }
    stk_artifact preview = {.digest = ""};
    if (r != NULL && r->preview != NULL) {
        size_t len = strlen(r->preview);
        STK_TRY(stk_store_add_bytes(x->config.store, r->preview, len, &preview, err));
    }
    ret_ref->digest = stk_arena_dup(x->arena, artifact->digest);
    ret_ref->json =
        ref_json(artifact, r, declared, format, value, stk_text_if_any(preview.digest), x->arena);
    STK_TRY(stk_err_if_null(ret_ref->digest, err));
    STK_TRY(stk_err_if_null(ret_ref->json, err));
    stk_ref_row row = {.digest = ret_ref->digest,
                       .task = e->task,
                       .output = stk_arena_dup(x->arena, r != NULL ? r->name : declared->name),
                       .step = e->step->name,
                       .ref = ret_ref->json};
    if (r != NULL) {
        row.name = stk_arena_dup(x->arena, r->artifact_name);
        row.version = stk_arena_dup(x->arena, r->artifact_version);
    }
    return stk_exec_push_ref(x, &row, err);
}

/* The format by the result or the document; NULL: neither gives one. */
static const char *format_of(const stk_result_output *r, const stk_output *declared)
{
    if (r != NULL && r->format != NULL) {
        return r->format;
    }
    return declared != NULL ? declared->type : NULL;
}

/* Publishes an output that was made elsewhere: the share has it, and it is fetched when it is read.
 */
static int publish_absent(stk_exec *x, const exec_ending *e, const stk_result_output *r,
                          const stk_output *declared, exec_ref *ret_ref, stk_err *err)
{
    stk_artifact artifact = {.size = r->size};
    const char *path = NULL;
    memcpy(artifact.digest, r->digest, sizeof artifact.digest);
    if (r->size >= 0) {
        STK_TRY(stk_store_add_absent(x->config.store, r->digest, r->size, false, err));
    } else {
        STK_TRY(
            stk_store_artifact(x->config.store, r->digest, x->scratch, &path, &artifact.size, err));
    }
    return name_output(x, e, r, declared, &artifact, stk_text_or(format_of(r, declared), "file"),
                       NULL, ret_ref, err);
}

/* Makes a file or folder an artifact. Hashes the content even if the step gives a digest, because a
 * wrong digest is the step's fault. */
static int take_path(stk_exec *x, const stk_result_output *r, const char *name, const char *path,
                     stk_artifact *ret, stk_err *err)
{
    int rc = stk_exec_sum_take(x, path, NULL, ret, err);
    if (rc == 0 && r != NULL && r->digest != NULL && strcmp(r->digest, ret->digest) != 0) {
        stk_err_set(err, STK_E_PROTOCOL,
                    "output '%s' claims digest %.12s… in result.json, but its content has %.12s…",
                    name, r->digest, ret->digest);
        stk_err_hint(err, "leave 'digest' out: Stoker computes it from the content");
        return STK_E_PROTOCOL;
    }
    return rc;
}

static char *output_path(stk_exec *x, const exec_ending *e, const stk_result_output *r,
                         const stk_output *declared)
{
    if (r != NULL) {
        return stk_arena_printf(x->scratch, "%s/%s", e->dir, r->path);
    }
    return stk_arena_printf(x->scratch, "%s/out/%s", e->dir, declared->name);
}

/* An output behind a link is refused later; doesn't read it here. */
static int ask_output(stk_exec *x, const exec_ending *e, const stk_result_output *r,
                      const stk_output *declared, stk_err *err)
{
    stk_store *store = x->config.store;
    stk_store_work *work;
    stk_err ignored;
    if (r != NULL && (r->value != NULL || r->artifact != NULL || r->path == NULL)) {
        return 0;
    }
    char *path = output_path(x, e, r, declared);
    STK_TRY(stk_err_if_null(path, err));
    if (check_folders(e, "", path, &ignored) < 0 ||
        !stk_exec_sum_is_long(x->sum, store, EXEC_SUM_OUTPUT, path, NULL)) {
        return 0;
    }
    int rc = stk_exec_sum_ask(x->sum, store, EXEC_SUM_OUTPUT, path, NULL, &work, &ignored);
    return rc == STK_E_NOMEM ? stk_err_nomem(err) : 0; /* publishing reports the error */
}

static int ask_outputs(stk_exec *x, const exec_ending *e, stk_err *err)
{
    const stk_step *step = e->step;
    for (uint32_t i = 0; i < step->n_outputs && step->python == NULL; i++) {
        if (stk_exec_find_result(e, step->outputs[i].name) == NULL) {
            STK_TRY(ask_output(x, e, NULL, &step->outputs[i], err));
        }
    }
    if (!e->has_result) {
        return 0;
    }
    for (uint32_t i = 0; i < e->result.n_outputs; i++) {
        STK_TRY(ask_output(x, e, &e->result.outputs[i], NULL, err));
    }
    if (e->result.next_items != NULL) {
        return ask_output(x, e, e->result.next_items, NULL, err);
    }
    return 0;
}

int stk_exec_publish_ask(stk_exec *x, const exec_ending *e, stk_err *err)
{
    uint32_t ranks = stk_exec_ranks(x, e->task);
    STK_TRY(ask_outputs(x, e, err));
    for (uint32_t i = 1; i < ranks; i++) {
        exec_ending of_rank;
        stk_err ignored;
        if (stk_exec_read_rank(x, e, i, &of_rank, &ignored) == 0) {
            STK_TRY(ask_outputs(x, &of_rank, err));
        }
    }
    return 0;
}

/* Makes a value of the result an artifact; a short one is also passed by value. */
static int publish_value(stk_exec *x, const exec_ending *e, const stk_result_output *r,
                         const stk_output *declared, size_t most, exec_ref *ret_ref, stk_err *err)
{
    stk_artifact artifact;
    size_t len = strlen(r->value);
    STK_TRY(stk_store_add_bytes(x->config.store, r->value, len, &artifact, err));
    return name_output(x, e, r, declared, &artifact, "json", len <= most ? r->value : NULL, ret_ref,
                       err);
}

int stk_exec_publish(stk_exec *x, const exec_ending *e, const stk_result_output *r,
                     const stk_output *declared, exec_ref *ret_ref, stk_err *err)
{
    const char *name = r != NULL ? r->name : declared->name;
    size_t most = x->graph.grow == NULL ? STK_LIMIT_INLINE_BYTES : STK_LIMIT_INLINE_GROWN;
    stk_artifact artifact;
    struct stat st;
    const char *value = NULL;
    const char *format = format_of(r, declared);
    if (r != NULL && r->artifact != NULL) {
        return stk_err_set(err, STK_E_PROTOCOL,
                           "output '%s' names artifact %.12s…: only a step of a growing graph can "
                           "pass on artifacts of its inputs; write the content, or make it a value",
                           name, r->artifact);
    }
    if (r != NULL && r->value != NULL) {
        return publish_value(x, e, r, declared, most, ret_ref, err);
    }
    char *path = output_path(x, e, r, declared);
    STK_TRY(stk_err_if_null(path, err));
    STK_TRY(check_folders(e, name, path, err));
    if (lstat(path, &st) < 0) {
        if (errno == ENOENT && r != NULL && r->digest != NULL && stk_exec_is_away(x, e->task)) {
            return publish_absent(x, e, r, declared, ret_ref, err);
        }
        return stk_err_set(err, STK_E_NOT_FOUND,
                           "output '%s' was not written: the step must write it to "
                           "$STOKER_OUTPUT/%s, but there is no %s",
                           name, name, path);
    }
    if (format == NULL) {
        format = S_ISDIR(st.st_mode) ? "dir" : "file";
    }
    if (strcmp(format, "json") == 0) {
        value = small_json(path, st.st_size, most, x->scratch);
    }
    STK_TRY(take_path(x, r, name, path, &artifact, err));
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
