/* Copies a job: all that staging, the driver and collecting need, in one arena. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/random.h>

#include "away/aws/aws.h"
#include "away/remote/remote_private.h"
#include "base/text.h"

enum { GANG_KEY_BYTES = 32, GANG_PORT = 29500 };

/* Variables with which the agent reaches the share, if the engine has them (region and endpoint
 * also from AWS's files). The first group isn't secret. */
static const char *const plain_names[] = {"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL",
                                          "AWS_ENDPOINT_URL_S3", "STOKER_SHARE_REGION"};
static const char *const secret_names[] = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
                                           "AWS_SESSION_TOKEN"};

bool stk_remote_is_s3(const char *share_url)
{
    return strncmp(share_url, "s3:", 3) == 0;
}

static bool is_set(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && *value != '\0';
}

void stk_remote_share_env(remote_backend *b)
{
    STK_AWS_AUTO aws = NULL;
    char url[600], region[64];
    bool is_custom = false;
    size_t n = 0;
    if (!stk_remote_is_s3(b->config.share_url)) {
        return;
    }
    for (size_t i = 0; i < sizeof plain_names / sizeof *plain_names; i++) {
        if (is_set(plain_names[i])) {
            b->share_env[n++] =
                stk_arena_printf(b->arena, "%s=%s", plain_names[i], getenv(plain_names[i]));
        }
    }
    bool has_url = is_set("AWS_ENDPOINT_URL_S3") || is_set("AWS_ENDPOINT_URL");
    bool has_region = is_set("AWS_REGION") || is_set("AWS_DEFAULT_REGION");
    if ((has_url && has_region) || stk_aws_open(NULL, &aws, NULL) < 0) {
        return; /* the share reports errors of these files */
    }
    if (!has_url && stk_aws_endpoint(aws, "s3", url, sizeof url, &is_custom, NULL) == 0 &&
        is_custom) {
        b->share_env[n++] = stk_arena_printf(b->arena, "AWS_ENDPOINT_URL_S3=%s", url);
    }
    if (!has_region && stk_aws_region(aws, region, sizeof region, NULL) == 0) {
        b->share_env[n++] = stk_arena_printf(b->arena, "AWS_REGION=%s", region);
    }
}

static const char **texts_new(stk_arena *arena, const char *const *from, uint32_t n_more,
                              uint32_t *ret_n)
{
    uint32_t n = 0;
    while (from != NULL && from[n] != NULL) {
        n++;
    }
    const char **texts = stk_arena_array(arena, (size_t)n + n_more + 1, sizeof *texts);
    for (uint32_t i = 0; i < n && texts != NULL; i++) {
        texts[i] = stk_arena_dup(arena, from[i]);
        if (texts[i] == NULL) {
            return NULL;
        }
    }
    *ret_n = n;
    return texts;
}

static bool names(const char *const *list, const char *pair)
{
    size_t n = strcspn(pair, "=");
    for (uint32_t i = 0; list != NULL && list[i] != NULL; i++) {
        if (strlen(list[i]) == n && strncmp(list[i], pair, n) == 0) {
            return true;
        }
    }
    return false;
}

/* Divides the job's variables: secrets never go into an object of the share. The key of a gang's
 * nodes may, because it is valid for one attempt, whose data is there, too. */
static int copy_env(remote_task *t, const stk_job *job, stk_err *err)
{
    const char *const *secrets = job->elsewhere->secrets;
    uint32_t n = 0, n_secret = 0, n_pass = 0;
    const char **env = texts_new(t->arena, job->env, 1, &n);
    const char **secret = stk_arena_array(t->arena, (size_t)n + 8, sizeof *secret);
    const char **pass = stk_arena_array(t->arena, (size_t)n + 1, sizeof *pass);
    if (env == NULL || secret == NULL || pass == NULL) {
        return stk_err_nomem(err);
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (names(secrets, env[i])) {
            secret[n_secret++] = env[i];
            pass[n_pass++] = stk_arena_dupn(t->arena, env[i], strcspn(env[i], "="));
        } else {
            env[kept++] = env[i];
        }
    }
    if (job->nodes > 1) {
        unsigned char key[GANG_KEY_BYTES];
        char hex[STK_DIGEST_HEX + 1];
        if (getrandom(key, sizeof key, 0) != (ssize_t)sizeof key) {
            return stk_err_sys(err, STK_E_SYS, errno, "random numbers");
        }
        stk_digest_hex(key, hex);
        env[kept++] = stk_arena_printf(t->arena, "STOKER_GANG_KEY=%s", hex);
    }
    env[kept] = NULL;
    t->order.env = env;
    t->order.pass = pass;
    if (job->elsewhere->expand != NULL) {
        t->order.expand = texts_new(t->arena, job->elsewhere->expand, 0, &n);
        STK_TRY(stk_err_if_null(t->order.expand, err));
    }
    t->job.secret = secret;
    return 0;
}

/* Sets the container's own variables, which the agent needs. */
static int container_env(const remote_backend *b, remote_task *t, stk_err *err)
{
    const char **env = stk_arena_array(t->arena, 16, sizeof *env);
    uint32_t n = 0, n_secret = 0;
    const char **secret = (const char **)(uintptr_t)t->job.secret;
    STK_TRY(stk_err_if_null(env, err));
    env[n++] = "STOKER_AGENT=1";
    bool is_s3 = stk_remote_is_s3(b->config.share_url);
    for (size_t i = 0; b->share_env[i] != NULL; i++) {
        env[n++] = b->share_env[i];
    }
    while (secret[n_secret] != NULL) {
        n_secret++;
    }
    for (size_t i = 0; is_s3 && i < sizeof secret_names / sizeof *secret_names; i++) {
        const char *value = getenv(secret_names[i]);
        if (value != NULL) {
            secret[n_secret++] = stk_arena_printf(t->arena, "%s=%s", secret_names[i], value);
        }
    }
    t->job.env = env;
    return 0;
}

static const stk_resources *copy_resources(stk_arena *arena, const stk_resources *from)
{
    stk_resources *r = stk_arena_alloc(arena, sizeof *r);
    if (r == NULL) {
        return NULL;
    }
    *r = STK_RESOURCES_UNSET;
    if (from != NULL) {
        *r = *from;
    }
    r->base.gpu_class = stk_arena_dup(arena, r->base.gpu_class);
    r->base.gpu_vendor = stk_arena_dup(arena, r->base.gpu_vendor);
    r->more = stk_arena_dup(arena, r->more);
    stk_alternative *asks = stk_arena_array(arena, (size_t)r->n_any_of + 1, sizeof *asks);
    for (uint32_t i = 0; i < r->n_any_of && asks != NULL; i++) {
        asks[i] = r->any_of[i];
        asks[i].gpu_class = stk_arena_dup(arena, asks[i].gpu_class);
        asks[i].gpu_vendor = stk_arena_dup(arena, asks[i].gpu_vendor);
    }
    r->any_of = asks;
    return asks == NULL ? NULL : r;
}

/* Names the folders in which the agent opens a store and unpacks the code. A folder within another
 * needs no mount. */
static int name_folders(remote_backend *b, remote_task *t, stk_err *err)
{
    const char **list = stk_arena_array(t->arena, 3, sizeof *list);
    const char *root = b->config.code_root;
    size_t n = strlen(stk_text_or(root, ""));
    STK_TRY(stk_err_if_null(list, err));
    bool store_within = root != NULL && strncmp(b->store_path, root, n) == 0 &&
                        (b->store_path[n] == '/' || b->store_path[n] == '\0');
    list[0] = stk_text_or(root, b->store_path);
    if (root != NULL && !store_within) {
        list[1] = b->store_path;
    }
    t->job.folders = list;
    return 0;
}

static int agent_argv(remote_backend *b, remote_task *t, stk_err *err)
{
    const char **argv = stk_arena_array(t->arena, 5, sizeof *argv);
    const char *program = stk_arena_printf(t->arena, "%s/bin/stoker", b->config.carry_at);
    if (argv == NULL || program == NULL) {
        return stk_err_nomem(err);
    }
    argv[0] = program;
    argv[1] = "agent";
    argv[2] = b->config.share_url;
    argv[3] = t->key;
    t->job.argv = argv;
    return 0;
}

/* Orders the agent to check the devices in its container: their number, vendor and a model that all
 * alternatives share. Drivers refuse what they can't request; the agent makes the last check before
 * the task runs. */
static int order_devices(remote_task *t, stk_err *err)
{
    stk_alternative wants[STK_LIMIT_ASKS];
    uint32_t n = stk_spec_alternatives(t->job.resources, wants);
    const char **classes = stk_arena_array(t->arena, STK_LIMIT_ASKS + 1, sizeof *classes);
    bool is_any = n == 0, is_anybodys = n == 0;
    STK_TRY(stk_err_if_null(classes, err));
    const char *vendor = n == 0 ? NULL : stk_spec_vendor_of(&wants[0]);
    for (uint32_t i = 0; i < n; i++) {
        const char *of = stk_spec_vendor_of(&wants[i]);
        classes[i] = wants[i].gpu_class;
        is_any = is_any || classes[i] == NULL;
        is_anybodys = is_anybodys || of == NULL || vendor == NULL || strcmp(of, vendor) != 0;
    }
    t->order.n_devices = n == 0 ? 0 : (uint32_t)wants[0].gpu_count;
    t->order.device_vendor = is_anybodys ? NULL : vendor;
    t->order.device_classes = is_any ? NULL : classes;
    return 0;
}

static int fill_task(remote_backend *b, remote_task *t, const stk_job *job, stk_err *err)
{
    const stk_job_elsewhere *e = job->elsewhere;
    uint32_t n = 0;
    stk_arena *arena = t->arena;
    const char *dir = stk_arena_dup(arena, job->dir);
    const char *task = strrchr(stk_text_or(dir, ""), '/'); /* …/<task>/<attempt> */
    while (task != NULL && task > dir && *--task != '/') {
    }
    t->order = (stk_remote_order){.run = b->config.run,
                                  .step = stk_arena_dup(arena, job->step),
                                  .task = task == NULL ? 0 : (uint32_t)strtoul(task + 1, NULL, 10),
                                  .attempt = job->attempt,
                                  .dir = dir,
                                  .store = b->store_path,
                                  .argv = texts_new(arena, job->argv, 0, &n),
                                  .cwd = stk_arena_dup(arena, job->cwd),
                                  .code_digest = b->config.code_digest,
                                  .code_root = b->config.code_root,
                                  .timeout_ms = job->timeout_ms,
                                  .notice_ms = job->notice_ms,
                                  .grace_ms = job->grace_ms,
                                  .sample_ms = job->sample_ms,
                                  .reads_samples = job->reads_samples,
                                  .gang = job->gang,
                                  .checkpoints = stk_arena_dup(arena, job->checkpoints),
                                  .nodes = MAX(job->nodes, 1),
                                  .threads = job->threads};
    t->job = (stk_remote_job){.id = job->id,
                              .run = b->config.run,
                              .pipeline = b->config.pipeline,
                              .step = t->order.step,
                              .task = t->order.task,
                              .attempt = job->attempt,
                              .name = t->name,
                              .image = stk_arena_dup(arena, e->image),
                              .image_named = stk_arena_dup(arena, e->image_named),
                              .resources = copy_resources(arena, e->resources),
                              .options = stk_arena_dup(arena, stk_text_or(e->options, "{}")),
                              .carry = b->config.driver.carry,
                              .carry_at = b->config.carry_at,
                              .nodes = t->order.nodes,
                              .port = GANG_PORT,
                              .timeout_ms = job->timeout_ms,
                              .grace_ms = job->grace_ms,
                              .attach = e->attach,
                              .look = e->attach,
                              .is_many = e->is_many};
    t->only_to_end = e->only_to_end;
    t->mid_line = stk_arena_array(arena, t->order.nodes, sizeof *t->mid_line);
    if (dir == NULL || t->order.step == NULL || t->order.argv == NULL || t->job.resources == NULL ||
        t->job.options == NULL || t->mid_line == NULL) {
        return stk_err_nomem(err);
    }
    STK_TRY(order_devices(t, err));
    t->key = stk_remote_key(b->store_path, dir);
    t->job.key = t->key;
    if (t->key == NULL) {
        return stk_err_set(err, STK_E_BUG, "step '%s': its directory %s isn't in store %s",
                           job->step, job->dir, b->store_path);
    }
    stk_remote_name(b->config.run, t->order.step, t->order.task, t->order.attempt, t->name);
    STK_TRY(copy_env(t, job, err));
    STK_TRY(container_env(b, t, err));
    STK_TRY(name_folders(b, t, err));
    return agent_argv(b, t, err);
}

int stk_remote_task_new(remote_backend *b, const stk_job *job, remote_task **ret, stk_err *err)
{
    if (job->elsewhere == NULL || job->argv == NULL) {
        return stk_err_set(err, STK_E_BUG, "step '%s' doesn't run on another machine", job->step);
    }
    remote_task *t = calloc(1, sizeof *t);
    STK_TRY(stk_err_if_null(t, err));
    t->arena = stk_arena_new(0);
    int rc = fill_task(b, t, job, err);
    if (rc < 0) {
        stk_remote_task_free(t);
        return rc;
    }
    *ret = t;
    return 0;
}

void stk_remote_task_free(remote_task *t)
{
    if (t != NULL) {
        stk_arena_free(t->arena);
        free(t);
    }
}
