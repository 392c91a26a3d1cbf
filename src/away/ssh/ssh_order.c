/* What a host is told of a job. Pure. */
#include <stdio.h>
#include <string.h>

#include "away/ssh/ssh_private.h"
#include "base/text.h"

enum { ORDER_BYTES = 4 << 20 };

static void put_memory(stk_buf *out, const char *key, int64_t bytes)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%lldB", (long long)bytes);
    stk_json_put_text(out, key, text);
}

static void put_alternative(stk_buf *out, const stk_alternative *a)
{
    stk_json_put_known_whole(out, "gpu_count", a->gpu_count);
    if (a->gpu_memory_bytes > 0) {
        put_memory(out, "gpu_memory", a->gpu_memory_bytes);
    } else if (a->gpu_memory_bytes == STK_GPU_MEMORY_AUTO) { /* a host knows no earlier runs */
        stk_json_put_text(out, "gpu_memory", "auto");
    }
    stk_json_put_known_text(out, "gpu_class", a->gpu_class);
    stk_json_put_known_text(out, "gpu_vendor", a->gpu_vendor);
}

int stk_ssh_resources(const stk_resources *r, stk_arena *arena, const char **ret, stk_err *err)
{
    STK_BUF_AUTO out = STK_BUF_INIT(ORDER_BYTES);
    stk_json_open(&out, NULL, '{');
    if (r->cpu_milli > 0) {
        stk_json_put_real(&out, "cpu_count", (double)r->cpu_milli / 1000);
    }
    if (r->memory_bytes > 0) {
        put_memory(&out, "memory", r->memory_bytes);
    }
    put_alternative(&out, &r->base);
    if (r->n_any_of > 0) {
        stk_json_open(&out, "any_of", '[');
        for (uint32_t i = 0; i < r->n_any_of; i++) {
            stk_json_open(&out, NULL, '{');
            put_alternative(&out, &r->any_of[i]);
            stk_json_close(&out, '}');
        }
        stk_json_close(&out, ']');
    }
    stk_json_close(&out, '}');
    *ret = stk_buf_keep(&out, arena);
    return stk_err_if_null(*ret, err);
}

const char *stk_ssh_store_path(const char *url)
{
    static const char scheme[] = "ssh://";
    if (url == NULL || url[0] == '/') {
        return url;
    }
    if (strncmp(url, scheme, sizeof scheme - 1) != 0) {
        return NULL;
    }
    const char *path = strchr(url + sizeof scheme - 1, '/');
    if (path != NULL && strncmp(path, "/~/", 3) == 0) {
        path++;
    }
    return path;
}

static int check_folders(const stk_remote_job *job, stk_err *err)
{
    for (const char *const *f = job->folders; *f != NULL; f++) {
        if (strchr(*f, ':') != NULL || (*f)[0] != '/') {
            return stk_err_set(err, STK_E_SPEC,
                               "'%s' can't be a folder of a job over SSH; it must be an absolute "
                               "path without a colon",
                               *f);
        }
    }
    return 0;
}

/* A class says whose devices it means. */
static int check_vendors(const stk_remote_job *job, stk_err *err)
{
    stk_alternative wants[STK_LIMIT_ASKS];
    uint32_t n = stk_spec_alternatives(job->resources, wants);
    for (uint32_t i = 0; i < n; i++) {
        const char *vendor = stk_spec_vendor_of(&wants[i]);
        const char *by_class = stk_spec_vendor_of_class(wants[i].gpu_class);
        if (by_class != NULL && vendor != NULL && strcmp(by_class, vendor) != 0) {
            return stk_err_set(err, STK_E_SPEC,
                               "gpu_class '%s' means devices of %s, but gpu_vendor is %s; remove "
                               "one of them",
                               wants[i].gpu_class, by_class, vendor);
        }
    }
    return 0;
}

/* A gang has each node on a host of its own. */
static int enough_hosts(const stk_driver_config *config, const stk_remote_job *job,
                        const stk_remote_options *options, stk_err *err)
{
    const stk_json *hosts = NULL;
    uint32_t n = stk_remote_option_texts(options, "hosts", &hosts);
    if (stk_remote_option_text(options, "host") != NULL) {
        n = 1;
    }
    if (job->nodes <= n) {
        return 0;
    }
    stk_err_set(err, STK_E_SPEC, "it asks for %u nodes, but %u host%s of stack '%s' can be its",
                job->nodes, n, stk_text_plural(n), config->stack);
    stk_err_hint(err, "lower `nodes` of its gang, or name more hosts");
    return STK_E_SPEC;
}

static void put_hosts(stk_buf *out, const stk_remote_options *options)
{
    const stk_json *hosts = NULL;
    uint32_t n = stk_remote_option_texts(options, "hosts", &hosts);
    const char *pinned = stk_remote_option_text(options, "host");
    stk_json_open(out, "hosts", '[');
    for (uint32_t i = 0; i < n; i++) {
        if (pinned == NULL || strcmp(pinned, hosts[i].text) == 0) {
            stk_json_put_text(out, NULL, hosts[i].text);
        }
    }
    stk_json_close(out, ']');
}

static void put_names(stk_buf *out, const char *key, const char *const *pairs)
{
    stk_json_open(out, key, '[');
    for (; pairs != NULL && *pairs != NULL; pairs++) {
        char name[256];
        (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(*pairs, "="), *pairs);
        stk_json_put_text(out, NULL, name);
    }
    stk_json_close(out, ']');
}

static void put_keep(stk_buf *out, const stk_remote_options *options)
{
    const stk_json *keep = NULL;
    uint32_t n = stk_remote_option_texts(options, "keep", &keep);
    stk_json_open(out, "keep", '[');
    for (uint32_t i = 0; i < n; i++) {
        stk_json_put_text(out, NULL, keep[i].text);
    }
    stk_json_close(out, ']');
}

int stk_ssh_order(const stk_driver_config *config, const stk_remote_job *job, stk_arena *arena,
                  const char **ret, stk_err *err)
{
    STK_BUF_AUTO out = STK_BUF_INIT(ORDER_BYTES);
    stk_remote_options options;
    const char *resources = NULL;
    char label[400];
    STK_TRY(stk_ssh_options_read(config->stack, job->step, job->options, config->options, arena,
                                 &options, err));
    STK_TRY(check_folders(job, err));
    STK_TRY(check_vendors(job, err));
    STK_TRY(enough_hosts(config, job, &options, err));
    STK_TRY(stk_ssh_resources(job->resources, arena, &resources, err));
    const char *store = stk_text_or(config->share_url, "STORE");
    (void)snprintf(label, sizeof label, "run %s step %s", job->run, job->step);
    stk_json_open(&out, NULL, '{');
    put_hosts(&out, &options);
    stk_json_put_text(&out, "name", job->name);
    stk_json_put_text(&out, "label", label);
    stk_json_put_text(&out, "store", stk_text_or(stk_ssh_store_path(store), store));
    stk_json_put_text(&out, "key", stk_text_or(job->key, "KEY"));
    stk_json_put_raw(&out, "resources", resources);
    stk_json_put_int(&out, "nodes", job->nodes);
    stk_json_put_int(&out, "port", job->port);
    stk_json_put_int(&out, "grace_ms", job->grace_ms);
    stk_json_put_texts(&out, "empty", job->folders);
    put_keep(&out, &options);
    stk_json_put_texts(&out, "env", job->env);
    put_names(&out, "secrets", job->secret);
    stk_json_close(&out, '}');
    *ret = stk_buf_keep(&out, arena);
    return stk_err_if_null(*ret, err);
}
