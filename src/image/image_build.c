/* A recipe → an image of the container engine, built only where it isn't there already. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "image/image_private.h"
#include "image/image_recipe.h"
#include "sys/file.h"

#define REPOSITORY "localhost/stoker-env"

enum { MAX_QUERY = 1 << 20, N_LAST = 8 };

static const stk_json_limits limits = {64 << 20, 1 << 20, 60};

/* --- the question --- */

/* Docker's name of a query parameter for DockerBuildOptions' one; others are passed as they are. */
static const char *parameter(const char *option)
{
    static const char *const names[][2] = {
        {"no_cache", "nocache"},       {"shm_size", "shmsize"},    {"build_args", "buildargs"},
        {"cache_from", "cachefrom"},   {"network", "networkmode"}, {"network_mode", "networkmode"},
        {"extra_hosts", "extrahosts"}, {"force_rm", "forcerm"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(names[i][0], option) == 0) {
            return names[i][1];
        }
    }
    return option;
}

static void put_option(const stk_json *value, const char *name, stk_arena *arena, stk_buf *query)
{
    if (value->kind == STK_JSON_NULL) {
        return;
    }
    stk_buf_printf(query, "&%s=", parameter(name));
    if (value->kind == STK_JSON_BOOL) {
        stk_buf_char(query, (char)('0' + value->truth));
    } else if (value->kind == STK_JSON_MAP || value->kind == STK_JSON_LIST) {
        const char *json = stk_text_or(stk_json_dump_in(value, arena), "");
        stk_buf_percent(query, json, strlen(json), "");
    } else {
        stk_buf_percent(query, value->text, value->n, "");
    }
}

static const char *question(const stk_image_make *make, const char *file, const char *name,
                            stk_arena *arena)
{
    STK_BUF_AUTO query = STK_BUF_INIT(MAX_QUERY);
    const stk_json *options = make->settings.build_options;
    stk_buf_printf(&query, "/build?dockerfile=%s&forcerm=1&t=", file);
    stk_buf_percent(&query, name, strlen(name), "");
    for (uint32_t i = 0; options != NULL && i < options->n; i++) {
        put_option(stk_json_value(options, i), stk_json_key(options, i)->text, arena, &query);
    }
    if (query.failed) {
        return NULL;
    }
    return stk_arena_dup(arena, query.data);
}

/* The image that a line of a Dockerfile begins with, "FROM [--platform=…] NAME"; NULL: none. */
static const char *parent_in(const char *line, stk_arena *arena)
{
    const char *word = line + strspn(line, " \t");
    if (strncasecmp(word, "FROM ", 5) != 0) {
        return NULL;
    }
    word += 5 + strspn(word + 5, " \t");
    if (strncmp(word, "--", 2) == 0) {
        word += strcspn(word, " \t\n");
        word += strspn(word, " \t");
    }
    return stk_arena_dupn(arena, word, strcspn(word, " \t\r\n"));
}

/* Credentials for the images that the Dockerfile begins with: X-Registry-Config. */
static const char *registry_config(const char *dockerfile, stk_arena *arena, stk_err *err)
{
    STK_BUF_AUTO json = STK_BUF_INIT(MAX_QUERY);
    stk_json_open(&json, NULL, '{');
    for (const char *line = dockerfile; line != NULL; line = stk_text_next_line(line)) {
        stk_image_ref ref;
        stk_image_login login;
        const char *name = parent_in(line, arena);
        if (name == NULL || stk_image_parse(name, arena, &ref, NULL) < 0) {
            continue; /* another line, an earlier stage, a variable */
        }
        const char *where = stk_arena_printf(arena, "%s/%s", ref.registry, ref.repository);
        if (where == NULL || stk_image_login_find(where, arena, &login, err) < 0) {
            return NULL;
        }
        if (login.user != NULL) {
            bool hub = strcmp(ref.registry, "docker.io") == 0;
            stk_json_open(&json, hub ? "https://index.docker.io/v1/" : ref.registry, '{');
            stk_json_put_text(&json, "username", login.user);
            stk_json_put_text(&json, "password", login.secret);
            stk_json_close(&json, '}');
        }
    }
    stk_json_close(&json, '}');
    if (json.failed) {
        return NULL;
    }
    return stk_image_base64(json.data, json.len, true, arena);
}

/* --- the answer --- */

typedef struct listener {
    int fd; /* of the log, or -1 */
    stk_image_say *say;
    void *arg;
    stk_buf line;   /* that hasn't ended */
    char step[400]; /* the Dockerfile's line that is at work */
    char last[N_LAST][300];
    uint32_t n_last;
    char error[600];
} listener;

static bool begins(const char *line, const char *word)
{
    return strncasecmp(line, word, strlen(word)) == 0;
}

/* "Step 3/7 : RUN …" (Docker), "STEP 3/7: RUN …" (Podman). */
static void hear_line(listener *l, const char *line)
{
    if (*line == '\0') {
        return;
    }
    if (l->say != NULL) {
        l->say(l->arg, line);
    }
    const char *colon = strchr(line, ':');
    if (begins(line, "step ") && colon != NULL) {
        (void)snprintf(l->step, sizeof l->step, "%s", colon + 1 + strspn(colon + 1, " "));
        l->n_last = 0;
    } else if (!begins(line, "-->") && !begins(line, "--->")) {
        (void)snprintf(l->last[l->n_last++ % N_LAST], sizeof l->last[0], "%s", line);
    }
}

static void hear_output(listener *l, const char *text)
{
    if (l->fd >= 0) {
        (void)stk_file_write_all(l->fd, text, strlen(text));
    }
    for (const char *c = text; *c != '\0'; c++) {
        if (*c == '\n' || *c == '\r') {
            hear_line(l, stk_text_or(l->line.data, ""));
            stk_buf_clear(&l->line);
        } else {
            stk_buf_char(&l->line, *c);
        }
    }
}

static bool on_build(void *arg, const char *json, size_t n)
{
    listener *l = arg;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_json root;
    if (arena == NULL || stk_json_parse(json, n, "build", &limits, arena, &root, NULL) < 0) {
        return true;
    }
    const char *stream = stk_json_get_text(&root, "stream");
    const char *status = stk_json_get_text(&root, "status");
    const char *error = stk_json_get_text(&root, "error");
    if (stream != NULL) {
        hear_output(l, stream);
    } else if (status != NULL && stk_json_get(&root, "progressDetail") == NULL) {
        hear_output(l, status);
        hear_output(l, "\n");
    }
    if (error != NULL) {
        (void)snprintf(l->error, sizeof l->error, "%s", error);
        hear_output(l, error);
        hear_output(l, "\n");
    }
    return true;
}

static bool is_full(const listener *l)
{
    bool full = strcasestr(l->error, "no space left") != NULL;
    for (uint32_t i = 0; i < N_LAST && i < l->n_last; i++) {
        full = full || strcasestr(l->last[i], "no space left") != NULL;
    }
    return full;
}

/* The line of the output that says most: the last one that speaks of an error, else the last.
 * `words`: what the engine says itself. */
static const char *telling(const listener *l, const char *words)
{
    static const char *const signs[] = {"error", "no space", "not found", "failed", "denied"};
    const char *last = "", *found = NULL;
    for (uint32_t i = MAX(l->n_last, N_LAST) - N_LAST; i < l->n_last; i++) {
        const char *line = l->last[i % N_LAST];
        if (strncmp(line, words, strlen(line)) == 0) {
            continue;
        }
        last = line;
        for (size_t k = 0; k < sizeof signs / sizeof signs[0]; k++) {
            if (strcasestr(line, signs[k]) != NULL) {
                found = line;
            }
        }
    }
    return stk_text_or(found, last);
}

static int failed(const listener *l, const char *words, const char *log_path, stk_err *err)
{
    bool full = is_full(l) || strcasestr(words, "no space left") != NULL;
    const char *line = telling(l, words);
    char at[800];
    (void)snprintf(at, sizeof at, "%s", stk_text_or(stk_text_if_any(l->step), "its beginning"));
    if (*line != '\0') {
        size_t n = strlen(at);
        (void)snprintf(at + n, sizeof at - n, ": %.300s", line);
    }
    log_path = stk_text_or(log_path, "'stoker plan --dockerfile' shows what is built");
    if (full) {
        stk_err_set(err, STK_E_FULL, "building an image failed (no space left) at: %s (%.*s)", at,
                    (int)strcspn(words, "\r\n"), words);
        stk_err_hint(err, "free space by `docker system prune` or `podman system prune`; %s",
                     log_path);
        return STK_E_FULL;
    }
    stk_err_set(err, STK_E_ENV, "building an image failed at: %s (%.*s)", at,
                (int)strcspn(words, "\r\n"), words);
    stk_err_hint(err, "%s", log_path);
    return STK_E_ENV;
}

/* --- all of it --- */

/* `file`: the Dockerfile in the context, with this text. */
static int build(const stk_engine *engine, const stk_image_make *make, const char *file,
                 const char *text, const char *name, const char *log_path, stk_image_say *say,
                 void *arg, stk_arena *arena, stk_err *err)
{
    STK_FD_AUTO log = -1;
    STK_FD_AUTO tar = -1;
    const char *path = question(make, file, name, arena);
    const char *credentials = registry_config(text, arena, err);
    if (log_path != NULL) {
        log = open(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    }
    STK_TRY(stk_err_need(path, "for a build", err));
    if (credentials == NULL && err != NULL && err->code != 0) {
        return err->code;
    }
    STK_TRY(stk_err_need(credentials, "for a build", err));
    if (log_path != NULL && log < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "writing the build's log %s", log_path);
    }
    STK_TRY(stk_image_context_tar(&make->context, &tar, err));
    const char *header = stk_arena_printf(arena, "X-Registry-Config: %s", credentials);
    const char *const headers[] = {"Content-Type: application/x-tar", header, NULL};
    listener l = {.fd = log, .say = say, .arg = arg, .line = STK_BUF_INIT(1 << 20)};
    stk_err why = {0};
    if (log >= 0) { /* the log is whole without the Dockerfile's file */
        (void)stk_file_write_all(log, text, strlen(text));
        (void)stk_file_write_all(log, "\n", 1);
    }
    int rc = stk_engine_stream(engine, "POST", path, headers, tar, on_build, &l, &why);
    if (l.line.len > 0) {
        hear_output(&l, "\n");
    }
    if (*l.error != '\0') {
        rc = failed(&l, l.error, log_path, err);
    } else if (rc < 0) {
        rc = failed(&l, why.text, log_path, err);
    }
    stk_buf_done(&l.line);
    return rc;
}

/* The registry's copy: pushed unless it has it, then named by its digest. */
static int publish(const stk_engine *engine, const stk_image_recipe *recipe,
                   const stk_image_make *make, const char *id, stk_image_say *say, void *arg,
                   stk_arena *arena, const char **ret_pinned, stk_err *err)
{
    const char *repository = stk_text_or(make->settings.target_repository, "stoker-env");
    const char *tag = stk_text_or(make->settings.image_tag, make->tag);
    const char *text = stk_arena_printf(arena, "%s/%s:%s", recipe->registry, repository, tag);
    const char *digest = NULL;
    stk_image_ref ref;
    STK_TRY(stk_err_need(text, "for a name", err));
    STK_TRY(stk_image_parse(text, arena, &ref, err));
    /* a tag of the user's own may be an older build */
    bool known = make->settings.image_tag == NULL && !make->settings.prevent_build_reuse &&
                 stk_image_remote_digest(&ref, arena, &digest, NULL) == 0;
    if (!known) {
        const char *path = stk_arena_printf(arena, "/images/%s/tag?repo=%s/%s&tag=%s", id,
                                            ref.registry, ref.repository, ref.tag);
        STK_TRY(stk_err_need(path, "for a name", err));
        STK_TRY(stk_engine_call(engine, "POST", path, NULL, NULL, NULL, err));
        STK_TRY(stk_image_push(engine, &ref, say, arg, &digest, arena, err));
    }
    *ret_pinned = stk_arena_printf(arena, "%s/%s@%s", ref.registry, ref.repository, digest);
    return 0;
}

/* The parent of the packages: what is known, or the user's own Dockerfile, built first. Then the
 * resolver is asked what they would replace there. */
static int check_plan(const stk_engine *engine, const stk_image_recipe *recipe,
                      const stk_image_make *make, const char *log_path, stk_image_say *say,
                      void *arg, stk_arena *arena, stk_err *err)
{
    stk_image_config own = {.id = recipe->parent_id};
    const char *parent = recipe->parent;
    if (make->settings.dockerfile != NULL && make->own == NULL) {
        return 0;
    }
    if (make->settings.dockerfile != NULL) {
        const char *name = stk_arena_printf(arena, REPOSITORY ":own-%s", make->tag);
        STK_TRY(stk_err_need(name, "for a name", err));
        parent = make->settings.dockerfile;
        STK_TRY(
            build(engine, make, STK_IMAGE_OWN, make->own, name, log_path, say, arg, arena, err));
        STK_TRY(stk_image_local(engine, name, arena, &own, err));
    }
    if (own.id == NULL) {
        return 0;
    }
    return stk_image_plan_check(engine, make, parent, own.id, arena, err);
}

/* The image that the last stage of a Dockerfile begins with, where that is one: "" none. */
static const char *last_parent(const char *dockerfile, stk_arena *arena)
{
    const char *last = "";
    for (const char *line = dockerfile; line != NULL; line = stk_text_next_line(line)) {
        last = stk_text_or(parent_in(line, arena), last);
    }
    return last;
}

/* No resolver is asked what a command of the user's, or his own Dockerfile, installs: what came of
 * it is held against what it was built on. */
static int check_built(const stk_engine *engine, const stk_image_recipe *recipe,
                       const stk_image_make *make, const char *id, stk_arena *arena, stk_err *err)
{
    stk_image_contents before = {0}, after = {0};
    stk_image_config config = {.id = recipe->parent_id};
    const char *name = recipe->parent;
    if (make->settings.dockerfile == NULL && make->settings.local_install == NULL) {
        return 0;
    }
    if (make->settings.dockerfile != NULL) {
        name = last_parent(make->dockerfile.data, arena);
        if (*name == '\0' || stk_image_local(engine, name, arena, &config, NULL) != 0) {
            config.id = NULL;
        }
    }
    if (config.id == NULL || name == NULL ||
        stk_image_look_inside(engine, config.id, false, arena, &before, NULL) < 0 ||
        before.n_frameworks == 0) {
        return 0; /* an earlier stage, scratch: nothing that could be compared */
    }
    STK_TRY(stk_image_look_inside(engine, id, false, arena, &after, err));
    return stk_image_plan_compare(&before, &after, name, err);
}

static int build_if_needed(const stk_engine *engine, const stk_image_recipe *recipe,
                           stk_image_make *make, const char *log_path, stk_image_say *say,
                           void *arg, stk_arena *arena, const char **ret_id, bool *ret_built,
                           stk_err *err)
{
    stk_image_config there;
    const char *name = stk_arena_printf(arena, REPOSITORY ":%s", make->tag);
    STK_TRY(stk_err_need(name, "for a name", err));
    int rc = STK_E_NOT_FOUND;
    if (!make->settings.prevent_build_reuse) {
        rc = stk_image_local(engine, name, arena, &there, NULL);
    }
    if (rc == STK_E_NOT_FOUND) {
        if (log_path != NULL) {
            (void)unlink(log_path); /* of an earlier build */
        }
        STK_TRY(check_plan(engine, recipe, make, log_path, say, arg, arena, err));
        STK_TRY(build(engine, make, "Dockerfile", make->dockerfile.data, name, log_path, say, arg,
                      arena, err));
        *ret_built = true;
    }
    if (rc < 0) { /* built just now, or asked once more to know why not */
        STK_TRY(stk_image_local(engine, name, arena, &there, err));
    }
    *ret_id = there.id;
    return 0;
}

static const char *note_of(const stk_image_make *make, stk_arena *arena)
{
    if (make->context.n_left_out == 0) {
        return NULL;
    }
    return stk_arena_printf(arena,
                            "left out of the image as private: %s%s; to include one, add a line "
                            "with '!' and its name to .dockerignore",
                            make->context.left_out,
                            stk_text_when(make->context.n_left_out > STK_IMAGE_NAMED, " …"));
}

int stk_image_built(const stk_engine *engine, const stk_image_recipe *recipe, stk_arena *arena,
                    stk_image_config *ret, const char **ret_note, stk_err *err)
{
    stk_image_recipe ours = *recipe;
    stk_image_make *make = stk_arena_alloc(arena, sizeof *make);
    STK_TRY(stk_err_need(make, "to look for an image", err));
    ours.without_mounts = !engine->is_podman;
    *ret_note = NULL;
    int rc = stk_image_make_read(&ours, arena, make, err);
    stk_buf_done(&make->dockerfile);
    STK_TRY(rc);
    const char *name = recipe->parent_id;
    if (!make->adds_nothing || name == NULL) {
        name = stk_arena_printf(arena, REPOSITORY ":%s", make->tag);
    }
    *ret_note = note_of(make, arena);
    STK_TRY(stk_err_need(name, "to look for an image", err));
    return stk_image_local(engine, name, arena, ret, err);
}

static int build_and_publish(const stk_engine *engine, const stk_image_recipe *recipe,
                             const stk_image_recipe *ours, stk_image_make *make,
                             const char *log_path, stk_image_say *say, void *arg, stk_arena *arena,
                             stk_image_result *ret, stk_err *err)
{
    STK_TRY(build_if_needed(engine, ours, make, log_path, say, arg, arena, &ret->id,
                            &ret->was_built, err));
    STK_TRY(check_built(engine, recipe, make, ret->id, arena, err));
    if (recipe->registry == NULL) {
        return 0;
    }
    return publish(engine, recipe, make, ret->id, say, arg, arena, &ret->pinned, err);
}

/* The parent has no pip, so the build has failed with `why`: builds with this machine's uv, under
 * the name of the first recipe, by which the next run finds it. */
static int build_by_uv(const stk_engine *engine, const stk_image_recipe *ours, const char *tag,
                       const char *log_path, stk_image_say *say, void *arg, stk_arena *arena,
                       stk_image_result *ret, const stk_err *why, stk_err *err)
{
    stk_image_recipe again = *ours;
    stk_image_make *make = stk_arena_alloc(arena, sizeof *make);
    STK_TRY(stk_err_need(make, "for a build", err));
    STK_TRY(stk_image_take_uv(&again, why, arena, err));
    if (say != NULL) {
        say(arg, "the parent image has no pip: uv of this machine installs into it");
    }
    int rc = stk_image_make_read(&again, arena, make, err);
    if (rc == 0) {
        make->tag = tag;
        rc = build_and_publish(engine, ours, &again, make, log_path, say, arg, arena, ret, err);
    }
    stk_buf_done(&make->dockerfile);
    return rc;
}

int stk_image_build(const stk_engine *engine, const stk_image_recipe *recipe, const char *log_path,
                    stk_image_say *say, void *arg, stk_arena *arena, stk_image_result *ret,
                    stk_err *err)
{
    stk_image_recipe ours = *recipe;
    stk_image_make *make = stk_arena_alloc(arena, sizeof *make);
    STK_TRY(stk_err_need(make, "for a build", err));
    ours.without_mounts = !engine->is_podman;
    *ret = (stk_image_result){0};
    int rc = stk_image_make_read(&ours, arena, make, err);
    if (rc == 0 && make->adds_nothing && recipe->parent_id != NULL) {
        ret->id = recipe->parent_id;
    } else if (rc == 0) {
        stk_err why = {0};
        rc = build_and_publish(engine, recipe, &ours, make, log_path, say, arg, arena, ret, &why);
        if (rc < 0 && strstr(why.text, "No module named pip") != NULL) {
            rc = build_by_uv(engine, &ours, make->tag, log_path, say, arg, arena, ret, &why, err);
        } else if (rc < 0 && err != NULL) {
            *err = why;
        }
    }
    if (rc == 0) {
        ret->note = note_of(make, arena);
    }
    stk_buf_done(&make->dockerfile);
    return rc;
}
