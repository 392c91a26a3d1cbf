/* A look into an image: a container of it in which our own program reads files. Nothing of the
 * image runs, so scratch images and broken ones can be looked at as well. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <unistd.h>

#include "base/text.h"
#include "image/image_private.h"
#include "sys/file.h"

#define INSIDE "/stoker/bin"
#define LABEL "stoker.look"

enum { MAX_OUTPUT = 16 << 20, MAX_FACTS = 1 << 20, MAX_LIBRARIES = 8 };

static const stk_json_limits limits = {MAX_FACTS, 20000, 16};

/* --- one container, from its creation to its removal --- */

static const char *fact_text(const stk_json *map, const char *key)
{
    return stk_json_get_text(map, key);
}

/* Docker's API. Podman's own is another one: before Podman 5 its Docker-compatible one leaves out
 * devices without a word. */
static void put_docker(const stk_engine *engine, const stk_image_try *what, stk_buf *json)
{
    static const char *const all[] = {"nvidia.com/gpu=all", NULL};
    stk_json_put_texts(json, "Entrypoint", what->argv);
    stk_json_put_texts(json, "Cmd", NULL);
    stk_json_put_text(json, "User", "0:0");
    stk_json_put_text(json, "WorkingDir", "/");
    stk_json_open(json, "HostConfig", '{');
    stk_json_put_text(json, "NetworkMode", what->network);
    stk_json_put_texts(json, "Binds", what->binds);
    if (what->all_gpus) {
        stk_json_open(json, "DeviceRequests", '[');
        stk_json_open(json, NULL, '{');
        if (engine->has_nvidia) {
            stk_json_put_text(json, "Driver", "nvidia");
            stk_json_put_whole(json, "Count", -1);
            stk_json_put_raw(json, "Capabilities", "[[\"gpu\"]]");
        } else {
            stk_json_put_text(json, "Driver", "cdi");
            stk_json_put_texts(json, "DeviceIDs", all);
        }
        stk_json_close(json, '}');
        stk_json_close(json, ']');
    }
    stk_json_close(json, '}');
}

static void put_podman(const stk_image_try *what, stk_buf *json)
{
    static const char *const options[] = {"rbind", "ro", NULL};
    stk_json_put_texts(json, "entrypoint", what->argv);
    stk_json_put_texts(json, "command", NULL);
    stk_json_put_text(json, "user", "0:0");
    stk_json_put_text(json, "work_dir", "/");
    stk_json_open(json, "netns", '{');
    stk_json_put_text(json, "nsmode", what->network);
    stk_json_close(json, '}');
    stk_json_open(json, "devices", '[');
    stk_json_open(json, NULL, '{');
    stk_json_put_text(json, "path", "nvidia.com/gpu=all");
    stk_json_close(json, '}');
    stk_json_close(json, ']');
    stk_json_open(json, "mounts", '[');
    for (uint32_t i = 0; what->binds[i] != NULL; i++) {
        const char *colon = strchr(what->binds[i], ':');
        size_t from = (size_t)(colon - what->binds[i]), to = strcspn(colon + 1, ":");
        char path[PATH_MAX];
        stk_json_open(json, NULL, '{');
        stk_json_put_text(json, "type", "bind");
        (void)snprintf(path, sizeof path, "%.*s", (int)from, what->binds[i]);
        stk_json_put_text(json, "source", path);
        (void)snprintf(path, sizeof path, "%.*s", (int)to, colon + 1);
        stk_json_put_text(json, "destination", path);
        stk_json_put_texts(json, "options", options);
        stk_json_close(json, '}');
    }
    stk_json_close(json, ']');
}

static int create(const stk_engine *engine, const stk_image_try *what, stk_arena *arena,
                  const char **ret_id, stk_err *err)
{
    STK_BUF_AUTO json = STK_BUF_INIT(1 << 20);
    bool own = what->all_gpus && engine->is_podman && !engine->has_nvidia;
    static const char *const words[2][3] = {{"/containers/create", "Image", "Labels"},
                                            {"/libpod/containers/create", "image", "labels"}};
    char pid[16];
    stk_json root;
    (void)snprintf(pid, sizeof pid, "%d", (int)getpid());
    stk_json_open(&json, NULL, '{');
    stk_json_put_text(&json, words[own][1], what->id);
    stk_json_open(&json, words[own][2], '{');
    stk_json_put_text(&json, LABEL, pid);
    stk_json_close(&json, '}');
    if (own) {
        put_podman(what, &json);
    } else {
        put_docker(engine, what, &json);
    }
    stk_json_close(&json, '}');
    STK_TRY(stk_buf_check(&json, err));
    STK_TRY(stk_image_ask(engine, "POST", words[own][0], json.data, arena, &root, err));
    *ret_id = stk_json_get_text(&root, "Id");
    if (*ret_id == NULL) {
        return stk_err_set(err, STK_E_PROTOCOL, "the answer of %s has no id of the container",
                           engine->name);
    }
    return 0;
}

/* Containers that a killed process left: their label is its pid. */
static void remove_left(const stk_engine *engine, stk_arena *arena)
{
    stk_json list;
    const char *const ours[] = {LABEL, NULL};
    if (stk_engine_containers(engine, ours, arena, &list, NULL) < 0) {
        return;
    }
    for (uint32_t i = 0; i < stk_json_n_items(&list); i++) {
        const stk_json *labels = stk_json_get(&list.items[i], "Labels");
        const char *pid = fact_text(labels, LABEL);
        const char *id = fact_text(&list.items[i], "Id");
        if (pid == NULL || id == NULL || kill(atoi(pid), 0) == 0 || errno != ESRCH) {
            continue;
        }
        const char *path = stk_arena_printf(arena, "/containers/%s?force=1&v=1", id);
        if (path != NULL) {
            (void)stk_engine_call(engine, "DELETE", path, NULL, NULL, NULL, NULL);
        }
    }
}

int stk_image_run(const stk_engine *engine, const stk_image_try *what, stk_arena *arena,
                  stk_buf *out, stk_buf *log, int *ret_status, stk_err *err)
{
    STK_BUF_AUTO body = STK_BUF_INIT(MAX_OUTPUT);
    const char *id = NULL;
    stk_json ended;
    remove_left(engine, arena);
    STK_TRY(create(engine, what, arena, &id, err));
    const char *start = stk_arena_printf(arena, "/containers/%s/start", id);
    const char *wait = stk_arena_printf(arena, "/containers/%s/wait", id);
    const char *logs = stk_arena_printf(arena, "/containers/%s/logs?stdout=1&stderr=1", id);
    const char *gone = stk_arena_printf(arena, "/containers/%s?force=1&v=1", id);
    if (start == NULL || wait == NULL || logs == NULL || gone == NULL) {
        return stk_err_set(err, STK_E_NOMEM, "out of memory for a look into an image");
    }
    int rc = stk_engine_call(engine, "POST", start, NULL, NULL, NULL, err);
    if (rc == 0) {
        rc = stk_image_ask(engine, "POST", wait, NULL, arena, &ended, err);
    }
    if (rc == 0) {
        rc = stk_engine_call(engine, "GET", logs, NULL, NULL, &body, err);
    }
    (void)stk_engine_call(engine, "DELETE", gone, NULL, NULL, NULL, NULL);
    if (rc == 0) {
        int64_t status = -1;
        (void)stk_json_int(stk_json_get(&ended, "StatusCode"), &status);
        *ret_status = (int)status;
        stk_engine_split_log(&body, out, log);
    }
    return rc;
}

/* --- our program with its loader and libraries --- */

typedef struct carried {
    stk_arena *arena;
    const char *binds[MAX_LIBRARIES + 2];
    uint32_t n;
    const char *loader; /* where it is inside */
} carried;

/* The libraries that our program needs; those that libcurl has loaded are not among them. */
static int carry(struct dl_phdr_info *info, size_t size, void *arg)
{
    static const char *const ours[] = {"libc.so",  "libm.so",  "libdl.so", "libpthread.so",
                                       "librt.so", "ld-linux", "ld64.so"};
    (void)size;
    carried *c = arg;
    const char *slash = strrchr(stk_text_or(info->dlpi_name, ""), '/');
    char path[PATH_MAX];
    for (size_t i = 0; slash != NULL && i < sizeof ours / sizeof ours[0]; i++) {
        if (strncmp(slash + 1, ours[i], strlen(ours[i])) != 0 || c->n >= MAX_LIBRARIES ||
            realpath(info->dlpi_name, path) == NULL) {
            continue;
        }
        c->binds[c->n++] = stk_arena_printf(c->arena, "%s:" INSIDE "%s:ro", path, slash);
        if (slash[1] == 'l' && slash[2] == 'd') {
            c->loader = stk_arena_printf(c->arena, INSIDE "%s", slash);
        }
    }
    return 0;
}

static int look_in_container(const stk_engine *engine, const char *id, bool gpus, stk_arena *arena,
                             stk_buf *out, stk_err *err)
{
    STK_BUF_AUTO log = STK_BUF_INIT(MAX_OUTPUT);
    carried c = {.arena = arena};
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "finding our own program");
    }
    self[n] = '\0';
    (void)dl_iterate_phdr(carry, &c);
    c.binds[c.n++] = stk_arena_printf(arena, "%s:" INSIDE "/stoker:ro", self);
    if (c.loader == NULL) {
        return stk_err_set(
            err, STK_E_ENV,
            "can't find the loader of this program, which it needs to run inside an image");
    }
    static const char program[] = INSIDE "/stoker";
    const char *const argv[] = {c.loader, "--library-path", INSIDE, program,
                                "doctor", "--facts",        NULL};
    const stk_image_try what = {
        .id = id, .argv = argv, .binds = c.binds, .network = "none", .all_gpus = gpus};
    int status = 0, rc = stk_image_run(engine, &what, arena, out, &log, &status, err);
    if (rc == 0 && status != 0) {
        const char *words = "no reason given";
        if (log.len > 0) {
            words = log.data;
        } else if (out->len > 0) {
            words = out->data;
        }
        rc = stk_err_set(err, STK_E_ENV, "a look into image %.19s failed (%d): %.*s", id, status,
                         (int)strcspn(words, "\n"), words);
    }
    return rc;
}

/* --- what it says --- */

static bool truth_of(const stk_json *map, const char *key)
{
    const stk_json *value = stk_json_get(map, key);
    return stk_json_is_true(value);
}

static void read_framework(const stk_json *map, stk_framework *f)
{
    int64_t build = STK_BUILD_UNKNOWN, cuda = -1, ptx = -1;
    const char *bits = fact_text(map, "arch_bits");
    const stk_json *serves = stk_json_get(map, "serves");
    (void)stk_json_int(stk_json_get(map, "build"), &build);
    if (!stk_json_int(stk_json_get(map, "cuda"), &cuda)) {
        cuda = -1;
    }
    if (!stk_json_int(stk_json_get(map, "ptx_arch"), &ptx)) {
        ptx = -1;
    }
    *f = (stk_framework){.name = fact_text(map, "name"),
                         .version = fact_text(map, "version"),
                         .folder = fact_text(map, "folder"),
                         .cuda = (int32_t)cuda,
                         .cuda_minor_known = truth_of(map, "cuda_minor_known"),
                         .arch_bits = strtoull(stk_text_or(bits, "0"), NULL, 16),
                         .has_ptx = truth_of(map, "has_ptx"),
                         .ptx_arch = (int32_t)ptx,
                         .lacks_cudnn = truth_of(map, "lacks_cudnn")};
    f->build = STK_BUILD_UNKNOWN;
    if (build >= STK_BUILD_UNKNOWN && build <= STK_BUILD_OTHER) {
        f->build = (unsigned)build;
    }
    for (uint32_t i = 0;
         i < stk_json_n_items(serves) && i + 1 < sizeof f->serves / sizeof f->serves[0]; i++) {
        f->serves[i] = stk_json_text(&serves->items[i]);
    }
}

static int read_facts(const char *text, size_t n, stk_arena *arena, stk_image_contents *ret,
                      stk_err *err)
{
    stk_json root;
    const char *copy = stk_arena_dupn(arena, text, n);
    if (copy == NULL || stk_json_parse(copy, n, "facts", &limits, arena, &root, NULL) < 0 ||
        root.kind != STK_JSON_MAP) {
        return stk_err_set(err, STK_E_PROTOCOL, "a look into the image printed invalid JSON");
    }
    *ret = (stk_image_contents){.python = fact_text(&root, "python"),
                                .python_path = fact_text(&root, "python_path"),
                                .nvcc = fact_text(&root, "nvcc"),
                                .libcuda = fact_text(&root, "libcuda"),
                                .compat = truth_of(&root, "compat")};
    const stk_json *list = stk_json_get(&root, "frameworks");
    for (uint32_t i = 0; i < stk_json_n_items(list) && ret->n_frameworks < STK_PREFLIGHT_FRAMEWORKS;
         i++) {
        if (fact_text(&list->items[i], "name") != NULL) {
            read_framework(&list->items[i], &ret->frameworks[ret->n_frameworks++]);
        }
    }
    return 0;
}

/* --- kept per id --- */

static char *kept_path(const char *id, bool make)
{
    STK_TEXT_AUTO folder = stk_file_cache("images");
    if (folder == NULL || (make && stk_file_mkdirs(folder, 0700, NULL) < 0)) {
        return NULL;
    }
    const char *hex = id + strcspn(id, ":");
    hex = *hex == ':' ? hex + 1 : id;
    return stk_file_printf("%s/%s-" STK_VERSION ".json", folder, hex);
}

int stk_image_look_inside(const stk_engine *engine, const char *id, bool with_gpus,
                          stk_arena *arena, stk_image_contents *ret, stk_err *err)
{
    STK_TEXT_AUTO path = kept_path(id, false);
    STK_TEXT_AUTO kept = NULL;
    size_t len = 0;
    if (!with_gpus && path != NULL &&
        stk_file_read_untrusted(path, MAX_FACTS, &kept, &len, NULL) == 0 &&
        read_facts(kept, len, arena, ret, NULL) == 0) {
        return 0;
    }
    STK_BUF_AUTO out = STK_BUF_INIT(MAX_FACTS);
    STK_TRY(look_in_container(engine, id, with_gpus, arena, &out, err));
    STK_TRY(read_facts(stk_text_or(out.data, ""), out.len, arena, ret, err));
    if (!with_gpus) { /* with devices passed, it depends on the host as well */
        STK_TEXT_AUTO made = kept_path(id, true);
        if (made != NULL) {
            (void)stk_file_write_atomic(made, out.data, out.len, 0600, NULL);
        }
    }
    return 0;
}

/* --- inside --- */

/* "12.8" of a toolkit's folder (version.json, before CUDA 11 version.txt); NULL. */
static const char *toolkit_version(const char *folder, stk_arena *arena)
{
    STK_TEXT_AUTO json_path = stk_file_join(folder, "version.json");
    STK_TEXT_AUTO text_path = stk_file_join(folder, "version.txt");
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    stk_json root;
    if (stk_file_read(json_path, MAX_FACTS, &text, &len, NULL) == 0 &&
        stk_json_parse(text, len, json_path, &limits, arena, &root, NULL) == 0) {
        const char *nvcc = fact_text(stk_json_get(&root, "cuda_nvcc"), "version");
        const char *cuda = fact_text(stk_json_get(&root, "cuda"), "version");
        return stk_arena_dup(arena, stk_text_or(nvcc, cuda));
    }
    STK_TEXT_AUTO old = NULL;
    (void)stk_file_read(text_path, MAX_FACTS, &old, &len, NULL);
    const char *at = strstr(stk_text_or(old, ""), "Version ");
    if (at == NULL) {
        return NULL;
    }
    return stk_arena_dupn(arena, at + 8, strcspn(at + 8, " \r\n"));
}

static const char *find_nvcc(stk_arena *arena)
{
    const char *path = getenv("PATH");
    if (access("/usr/local/cuda/bin/nvcc", X_OK) == 0) {
        const char *version = toolkit_version("/usr/local/cuda", arena);
        return stk_text_or(version, "");
    }
    while (path != NULL && *path != '\0') {
        char file[PATH_MAX], real[PATH_MAX];
        size_t n = strcspn(path, ":");
        (void)snprintf(file, sizeof file, "%.*s/nvcc", (int)n, path);
        if (n > 0 && access(file, X_OK) == 0 && realpath(file, real) != NULL) {
            char *end = strstr(real, "/bin/nvcc");
            if (end != NULL) {
                *end = '\0';
            }
            const char *version = toolkit_version(real, arena);
            return stk_text_or(version, "");
        }
        path += n + (path[n] == ':');
    }
    return NULL;
}

static const char *find_libcuda(stk_arena *arena)
{
    static const char *const folders[] = {"/usr/lib/x86_64-linux-gnu",
                                          "/usr/lib/aarch64-linux-gnu",
                                          "/usr/lib64",
                                          "/usr/lib",
                                          "/usr/local/nvidia/lib64",
                                          "/usr/lib/wsl/lib"};
    char file[PATH_MAX];
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        (void)snprintf(file, sizeof file, "%s/libcuda.so.1", folders[i]);
        if (access(file, F_OK) == 0) {
            return stk_arena_dup(arena, file);
        }
    }
    for (const char *list = getenv("LD_LIBRARY_PATH"); list != NULL && *list != '\0';) {
        size_t n = strcspn(list, ":");
        (void)snprintf(file, sizeof file, "%.*s/libcuda.so.1", (int)n, list);
        if (n > 0 && strstr(file, "compat") == NULL && access(file, F_OK) == 0) {
            return stk_arena_dup(arena, file);
        }
        list += n + (list[n] == ':');
    }
    return NULL;
}

static void put_framework(stk_buf *out, const stk_framework *f)
{
    char bits[24];
    (void)snprintf(bits, sizeof bits, "%llx", (unsigned long long)f->arch_bits);
    stk_json_open(out, NULL, '{');
    stk_json_put_text(out, "name", f->name);
    stk_json_put_text(out, "version", f->version);
    stk_json_put_text(out, "folder", f->folder);
    stk_json_put_int(out, "build", f->build);
    stk_json_put_texts(out, "serves", f->serves);
    stk_json_put_int(out, "cuda", f->cuda);
    stk_json_put_bool(out, "cuda_minor_known", f->cuda_minor_known);
    stk_json_put_text(out, "arch_bits", bits);
    stk_json_put_bool(out, "has_ptx", f->has_ptx);
    stk_json_put_int(out, "ptx_arch", f->ptx_arch);
    stk_json_put_bool(out, "lacks_cudnn", f->lacks_cudnn);
    stk_json_close(out, '}');
}

int stk_image_facts_here(stk_arena *arena, stk_buf *out, stk_err *err)
{
    stk_environment environment = {0};
    stk_framework found[STK_PREFLIGHT_FRAMEWORKS];
    uint32_t n = 0;
    if (stk_preflight_environment("python3", arena, &environment, NULL) < 0 &&
        stk_preflight_environment("python", arena, &environment, NULL) < 0) {
        environment = (stk_environment){0};
    } else if (stk_preflight_find(NULL, environment.sys_path, arena, found,
                                  STK_PREFLIGHT_FRAMEWORKS, &n, NULL) < 0) {
        n = 0;
    }
    stk_json_open(out, NULL, '{');
    stk_json_put_text(out, "python", environment.version);
    stk_json_put_text(out, "python_path", environment.python);
    stk_json_open(out, "frameworks", '[');
    for (uint32_t i = 0; i < n; i++) {
        put_framework(out, &found[i]);
    }
    stk_json_close(out, ']');
    stk_json_put_text(out, "nvcc", find_nvcc(arena));
    stk_json_put_text(out, "libcuda", find_libcuda(arena));
    stk_json_put_bool(out, "compat", access("/usr/local/cuda/compat/libcuda.so.1", F_OK) == 0);
    stk_buf_text(out, "}\n");
    return stk_buf_check(out, err);
}
