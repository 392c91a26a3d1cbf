/* A recipe → a Dockerfile, its context and the digest of all of it. What changes seldom stands
 * first; the project's code isn't in the image at all, so that changing it rebuilds nothing. */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "image/image_private.h"
#include "image/image_recipe.h"
#include "sys/file.h"

/* Our files in the context and in the image while it is made. */
#define IN_CONTEXT ".stoker/"
#define OWN_UV "/tmp/stoker-uv"
#define IN_IMAGE "/tmp/stoker/"
#define PROJECT "/app"

enum { MAX_DOCKERFILE = 1 << 20 };

/* As Python shows it; NULL for lists and maps, which a Dockerfile can't hold. */
static const char *shown(const stk_json *value, stk_arena *arena)
{
    switch ((stk_json_kind)value->kind) {
    case STK_JSON_LIST:
    case STK_JSON_MAP:
        return NULL;
    case STK_JSON_NULL:
        return "";
    case STK_JSON_BOOL:
        return value->truth ? "True" : "False";
    default:
        return stk_arena_dupn(arena, value->text, value->n);
    }
}

/* ENV K="v": quotes and backslashes are the value's own, $ and \$ stay Docker's. */
static int put_environment(const stk_json *map, stk_arena *arena, stk_buf *out, stk_err *err)
{
    for (uint32_t i = 0; map != NULL && i < map->n; i++) {
        const char *name = stk_json_key(map, i)->text;
        const stk_json *value = stk_json_value(map, i);
        const char *text = shown(value, arena);
        if (text == NULL || strpbrk(text, "\n\r") != NULL || strpbrk(name, " =\n\"'$\\") != NULL ||
            *name == '\0') {
            return stk_err_set(err, STK_E_SPEC,
                               "docker: environment: '%s' must be a valid name, and its value one "
                               "line, to fit into a Dockerfile",
                               name);
        }
        stk_buf_printf(out, "ENV %s=\"", name);
        for (const char *c = text; *c != '\0'; c++) {
            if (*c == '"' || (*c == '\\' && c[1] != '$')) {
                stk_buf_char(out, '\\');
            }
            stk_buf_char(out, *c);
        }
        stk_buf_text(out, "\"\n");
    }
    return 0;
}

static void put_apt(const char *const *packages, stk_arena *arena, stk_buf *out)
{
    if (packages[0] == NULL) {
        return;
    }
    stk_buf_text(out, "RUN apt-get update \\\n && DEBIAN_FRONTEND=noninteractive apt-get install "
                      "-y --no-install-recommends");
    for (uint32_t i = 0; packages[i] != NULL; i++) {
        const char *quoted = stk_image_quote(packages[i], arena);
        stk_buf_printf(out, " %s", stk_text_or(quoted, ""));
    }
    stk_buf_text(out, " \\\n && rm -rf /var/lib/apt/lists/*\n");
}

static void put_run(const stk_image_settings *s, bool without_mounts, bool own_uv, stk_buf *out)
{
    stk_buf_text(out, "RUN ");
    if (own_uv && !without_mounts) {
        stk_buf_text(out, "--mount=type=bind,source=" IN_CONTEXT "uv,target=" OWN_UV " ");
    }
    if (s->cache_mount != NULL && !without_mounts) {
        stk_buf_text(out, "--mount=");
        if (strchr(s->cache_mount, '=') == NULL) {
            stk_buf_text(out, "type=cache,target=");
        }
        stk_buf_printf(out, "%s ", s->cache_mount);
    }
}

static void put_packages(const stk_image_make *m, const stk_image_recipe *recipe, stk_buf *out)
{
    const stk_image_settings *s = &m->settings;
    bool without_mounts = recipe->without_mounts, own_uv = recipe->uv != NULL;
    bool mount = s->cache_mount != NULL && strchr(s->cache_mount, '=') == NULL && !without_mounts;
    if (m->n_packages > 0 && own_uv && without_mounts) {
        stk_buf_text(out, "# the parent has no pip\nCOPY " IN_CONTEXT "uv " OWN_UV "\n");
    } else if (m->n_packages > 0 && s->uses_uv && !own_uv) {
        stk_buf_printf(out,
                       "RUN command -v uv > /dev/null \\\n || PIP_BREAK_SYSTEM_PACKAGES=1 python3 "
                       "-m pip install --no-cache-dir%s uv\n",
                       s->source_args);
    }
    for (uint32_t i = 0; i < m->n_packages; i++) {
        const stk_image_packages *p = &m->packages[i];
        stk_buf_printf(out, "# %s\nCOPY " IN_CONTEXT "%s " IN_IMAGE "\n", p->title, p->file);
        put_run(s, without_mounts, own_uv, out);
        if (s->uses_uv) {
            stk_buf_printf(out,
                           "%s pip install --python \"$(command -v python3)\" "
                           "--break-system-packages",
                           own_uv ? OWN_UV : "uv");
        } else {
            stk_buf_text(out, "PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install");
        }
        stk_buf_text(out, s->installer_args);
        if (mount) {
            stk_buf_printf(out, " --cache-dir=%s", s->cache_mount);
        }
        stk_buf_printf(out, " -r " IN_IMAGE "%s\n", p->file);
    }
}

/* A note per line → comments. */
static void put_notes(const stk_buf *notes, stk_buf *out)
{
    for (const char *line = notes->data; line != NULL && *line != '\0';) {
        size_t n = strcspn(line, "\n");
        stk_buf_printf(out, "# %.*s\n", (int)n, line);
        line += n + (line[n] == '\n');
    }
}

static char *below(const stk_image_recipe *recipe, const char *path)
{
    if (path == NULL) {
        return NULL;
    }
    return stk_file_below(recipe->folder, path);
}

/* Where it begins: the user's own Dockerfile with its context, else the parent. */
static int put_beginning(const stk_image_recipe *recipe, stk_image_make *m, stk_buf *out,
                         stk_err *err)
{
    const stk_image_settings *s = &m->settings;
    if (s->dockerfile == NULL) {
        stk_buf_printf(out, "FROM %s\n", recipe->parent);
        return 0;
    }
    STK_TEXT_AUTO path = below(recipe, s->dockerfile);
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    STK_TRY(stk_err_need(path, "for the Dockerfile", err));
    if (stk_file_read(path, MAX_DOCKERFILE, &text, &len, err) < 0) {
        return stk_err_context(err, "docker: dockerfile");
    }
    stk_buf_text(out, text);
    if (len > 0 && text[len - 1] != '\n') {
        stk_buf_char(out, '\n');
    }
    if (s->build_context_root == NULL) {
        return 0;
    }
    STK_TEXT_AUTO root = below(recipe, s->build_context_root);
    STK_TEXT_AUTO ignore = below(recipe, s->dockerignore);
    STK_TRY(stk_err_need(root, "for the build's context", err));
    return stk_image_context_tree(&m->context, root, "", ignore, true, err);
}

static int put_project(const stk_image_recipe *recipe, stk_image_make *m, stk_buf *out,
                       stk_err *err)
{
    const stk_image_settings *s = &m->settings;
    if (s->local_install == NULL) {
        return 0;
    }
    STK_TEXT_AUTO ignore = NULL;
    if (s->dockerfile == NULL) {
        ignore = below(recipe, s->dockerignore);
    }
    stk_buf_printf(out,
                   "# local_project_install_command: the project's files are part of the image\n"
                   "COPY " IN_CONTEXT "project/ " PROJECT "/\nRUN cd " PROJECT " && %s\n",
                   s->local_install);
    return stk_image_context_tree(&m->context, stk_text_or(recipe->folder, "."),
                                  IN_CONTEXT "project/", ignore, false, err);
}

static int put_files(stk_image_make *m, const char *uv, stk_err *err)
{
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < m->n_packages; i++) {
        char name[96];
        (void)snprintf(name, sizeof name, IN_CONTEXT "%s", m->packages[i].file);
        rc = stk_image_context_text(&m->context, name, m->packages[i].text, err);
    }
    if (rc == 0 && uv != NULL) {
        rc = stk_image_context_program(&m->context, IN_CONTEXT "uv", uv, err);
    }
    if (rc == 0 && m->own != NULL) {
        rc = stk_image_context_text(&m->context, STK_IMAGE_OWN, m->own, err);
    }
    STK_TRY(rc);
    return stk_image_context_text(&m->context, "Dockerfile", m->dockerfile.data, err);
}

/* A context may hold a Dockerfile of its own at that place; ours is the one that counts. */
static void drop_other_dockerfile(stk_image_context *context)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < context->n; i++) {
        const stk_image_file *f = &context->files[i];
        if (f->path == NULL || strcmp(f->name, "Dockerfile") != 0) {
            context->files[n++] = *f;
        }
    }
    context->n = n;
}

static int digest(const stk_image_recipe *recipe, stk_image_make *m, stk_arena *arena, stk_err *err)
{
    unsigned char sum[STK_DIGEST_BYTES];
    char hex[STK_DIGEST_HEX + 1];
    stk_sha256 sha;
    STK_BUF_AUTO head = STK_BUF_INIT(16 << 20);
    stk_buf_printf(&head, "stoker image 1\n%s\n", stk_text_or(recipe->parent_id, ""));
    if (m->settings.build_options != NULL) {
        stk_json_dump(m->settings.build_options, &head);
    }
    if (head.failed) {
        return stk_err_set(err, STK_E_NOMEM, "out of memory for the digest of a build");
    }
    stk_sha256_init(&sha);
    stk_sha256_add(&sha, head.data, head.len + 1);
    int rc = stk_image_context_digest(&m->context, &sha, err);
    stk_sha256_done(&sha, sum);
    STK_TRY(rc);
    stk_digest_hex(sum, hex);
    m->tag = stk_arena_dupn(arena, hex, 40);
    return stk_err_need(m->tag, "for a tag", err);
}

int stk_image_make_read(const stk_image_recipe *recipe, stk_arena *arena, stk_image_make *ret,
                        stk_err *err)
{
    stk_image_make *m = ret;
    STK_BUF_AUTO notes = STK_BUF_INIT(1 << 20);
    STK_BUF_AUTO body = STK_BUF_INIT(MAX_DOCKERFILE);
    *m = (stk_image_make){.dockerfile = STK_BUF_INIT(2 * MAX_DOCKERFILE), .context.arena = arena};
    STK_TRY(stk_image_settings_read(recipe->docker, arena, &m->settings, err));
    STK_TRY(
        stk_image_gather(recipe, &m->settings, arena, m->packages, &m->n_packages, &notes, err));
    if (m->settings.dockerfile == NULL && recipe->parent == NULL) {
        return stk_err_set(err, STK_E_SPEC, "docker: set parent_image or dockerfile");
    }
    STK_TRY(put_environment(m->settings.environment, arena, &body, err));
    put_apt(m->settings.apt_packages, arena, &body);
    put_packages(m, recipe, &body);
    STK_TRY(put_project(recipe, m, &body, err));
    m->adds_nothing = body.len == 0 && m->settings.dockerfile == NULL;
    if (m->settings.user != NULL && !m->adds_nothing) {
        stk_buf_printf(&body, "USER %s\n", m->settings.user);
    }
    STK_TRY(put_beginning(recipe, m, &m->dockerfile, err));
    if (m->settings.dockerfile != NULL && m->n_packages > 0) {
        m->own = stk_arena_dup(arena, stk_text_or(m->dockerfile.data, ""));
        STK_TRY(stk_err_need(m->own, "for the Dockerfile", err));
    }
    put_notes(&notes, &m->dockerfile);
    stk_buf_text(&m->dockerfile, stk_text_or(body.data, ""));
    if (m->dockerfile.failed || body.failed || notes.failed) {
        return stk_err_set(err, STK_E_LIMIT, "the Dockerfile has more than %d bytes",
                           MAX_DOCKERFILE);
    }
    drop_other_dockerfile(&m->context);
    STK_TRY(put_files(m, recipe->uv, err));
    stk_image_context_sort(&m->context);
    return digest(recipe, m, arena, err);
}

int stk_image_dockerfile(const stk_image_recipe *recipe, stk_arena *arena, stk_buf *buf,
                         const char **ret_tag, stk_err *err)
{
    stk_image_make *m = stk_arena_alloc(arena, sizeof *m);
    STK_TRY(stk_err_need(m, "for the Dockerfile", err));
    int rc = stk_image_make_read(recipe, arena, m, err);
    if (rc == 0) {
        *ret_tag = m->tag;
        stk_buf_add(buf, m->dockerfile.data, m->dockerfile.len);
        rc = stk_buf_check(buf, err);
    }
    stk_buf_done(&m->dockerfile);
    return rc;
}
