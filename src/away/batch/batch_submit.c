/* Prepares a job for its submission: its queue, its secrets, its definition. */
#include <stdio.h>
#include <string.h>

#include "away/batch/batch_send.h"
#include "base/text.h"

#define PARAMETERS "AmazonSSM."

static void with_queue(batch_job *job);
static void with_secrets(batch_job *job);
static void with_definition(batch_job *job);

/* --- the queue --- */

static void ask_queue(batch_queue *queue, const char *path, const char *key, const char *const *ids,
                      stk_batch_done done);
static void queue_known(batch_queue *queue);

static void look_answered(void *arg, const stk_batch_answer *answer)
{
    batch_queue *queue = arg;
    queue->is_asked = false;
    if (answer->rc == 0 || !stk_batch_is_broken(queue->driver, answer)) {
        queue->driver->may_look = true;
        queue_known(queue);
    }
}

/* Checks before a submission that we may watch jobs; a job would run unwatched otherwise. */
static void ask_to_look(batch_queue *queue)
{
    static const char *const nobody[] = {"00000000-0000-0000-0000-000000000000", NULL};
    ask_queue(queue, "/v1/describejobs", "jobs", nobody, look_answered);
}

static void queue_known(batch_queue *queue)
{
    if (!queue->driver->may_look && !queue->is_failed) {
        ask_to_look(queue);
        return;
    }
    queue->is_known = true;
    queue->looked_ms = stk_batch_now_ms();
    for (uint32_t i = 0; i < queue->driver->n_jobs; i++) {
        batch_job *job = queue->driver->jobs[i];
        if (job->queue == queue && job->phase == BATCH_QUEUE) {
            with_queue(job);
        }
    }
}

static void queue_failed(batch_queue *queue, const char *text)
{
    (void)snprintf(queue->error, sizeof queue->error, "%s", text);
    queue->is_failed = true;
    queue_known(queue);
}

/* Appends ": REASON" if Batch gives one. */
static void add_reason(char *text, size_t size, const char *reason)
{
    size_t n = strlen(text);
    if (reason != NULL) {
        (void)snprintf(text + n, size - n, ": %s", reason);
    }
}

/* Explains why the queue's jobs wait, by conditions under which they never run. */
static void explain(batch_queue *queue)
{
    char text[400] = "";
    uint32_t n_good = 0;
    const stk_batch_queue *facts = &queue->facts;
    const char *name = stk_text_or(facts->name, queue->name);
    for (uint32_t i = 0; i < queue->n_environments; i++) {
        const stk_batch_environment *e = &queue->environments[i];
        if (stk_batch_is_good(e)) {
            n_good++;
            continue;
        }
        (void)snprintf(text, sizeof text, "its compute environment '%s' is %s, %s", e->name,
                       e->state, stk_text_or(e->status, "status unknown"));
        add_reason(text, sizeof text, e->reason);
    }
    queue->waits[0] = 0;
    if (!facts->enabled || !facts->valid) {
        (void)snprintf(queue->waits, sizeof queue->waits, "queue '%s' is %s", name,
                       facts->enabled ? "not valid" : "disabled");
        add_reason(queue->waits, sizeof queue->waits, facts->reason);
    } else if (n_good == 0 && text[0] != 0) {
        (void)snprintf(queue->waits, sizeof queue->waits, "queue '%s': %s", name, text);
    }
}

static void environments_answered(void *arg, const stk_batch_answer *answer)
{
    batch_queue *queue = arg;
    queue->is_asked = false;
    /* Without the right to read them, submitting may still work. */
    (void)stk_batch_environments_read(stk_batch_keep(answer->json, queue->arena), queue->arena,
                                      &queue->environments, &queue->n_environments);
    explain(queue);
    queue_known(queue);
}

static void ask_queue(batch_queue *queue, const char *path, const char *key, const char *const *ids,
                      stk_batch_done done)
{
    STK_BUF_AUTO body = STK_BUF_INIT(1 << 16);
    stk_err err = {0};
    stk_json_open(&body, NULL, '{');
    stk_json_put_texts(&body, key, ids);
    stk_json_close(&body, '}');
    queue->is_asked = true;
    if (stk_batch_call_batch(queue->driver->calls, path, body.data, done, queue, &err) < 0) {
        queue_failed(queue, err.text);
    }
}

static void queue_answered(void *arg, const stk_batch_answer *answer)
{
    batch_queue *queue = arg;
    char text[1024];
    queue->is_asked = false;
    if (answer->rc < 0 || answer->json == NULL) {
        /* Without the right to read the queue, assume one of EC2 instances. */
        queue->facts = (stk_batch_queue){.found = true, .enabled = true, .valid = true};
        if (strstr(answer->code, "AccessDenied") != NULL) {
            queue_known(queue);
        } else if (!stk_batch_is_broken(queue->driver, answer)) {
            (void)snprintf(text, sizeof text, "queue '%s': %s", queue->name,
                           stk_batch_why(answer, "no answer"));
            queue_failed(queue, text);
        }
        return;
    }
    stk_arena *arena = stk_arena_new(0);
    const stk_json *kept = stk_batch_keep(answer->json, arena);
    if (kept == NULL) {
        stk_arena_free(arena);
        queue_failed(queue, "out of memory");
        return;
    }
    stk_arena_free(queue->arena);
    queue->arena = arena;
    queue->n_environments = 0;
    (void)stk_batch_queue_read(kept, arena, &queue->facts);
    if (!queue->facts.found) {
        (void)snprintf(text, sizeof text,
                       "AWS Batch in %s has no job queue '%s'; use one that 'aws batch "
                       "describe-job-queues' lists",
                       queue->driver->region, queue->name);
        queue_failed(queue, text);
        return;
    }
    if (queue->facts.n_environments == 0) {
        queue_known(queue);
    } else {
        ask_queue(queue, "/v1/describecomputeenvironments", "computeEnvironments",
                  queue->facts.environments, environments_answered);
    }
}

void stk_batch_queue_look(batch_queue *queue)
{
    const char *const names[] = {queue->name, NULL};
    if (!queue->is_asked) {
        ask_queue(queue, "/v1/describejobqueues", "jobQueues", names, queue_answered);
    }
}

static batch_queue *get_queue(batch_driver *d, const char *name)
{
    for (batch_queue *q = d->queues; q != NULL; q = q->next) {
        if (strcmp(q->name, name) == 0) {
            return q;
        }
    }
    batch_queue *queue = stk_arena_alloc(d->arena, sizeof *queue);
    const char *copy = stk_arena_dup(d->arena, name);
    if (queue == NULL || copy == NULL) {
        return NULL;
    }
    *queue = (batch_queue){.next = d->queues, .driver = d, .name = copy};
    d->queues = queue;
    return queue;
}

void stk_batch_begin(batch_job *job)
{
    job->phase = BATCH_QUEUE;
    job->queue = get_queue(job->driver, job->ask.queue);
    if (job->queue == NULL) {
        stk_batch_fail(job, STK_FAIL_START, "out of memory");
    } else if (job->queue->is_known) {
        with_queue(job);
    } else {
        stk_batch_queue_look(job->queue);
    }
}

static stk_batch_facts facts_of(const batch_job *job)
{
    const batch_queue *queue = job->queue;
    stk_batch_facts facts = {.region = job->driver->region, .secret_at = job->secret_at};
    if (queue->n_environments > 0 && stk_batch_is_fargate(&queue->environments[0])) {
        facts.platform = STK_BATCH_FARGATE;
    }
    return facts;
}

static void with_queue(batch_job *job)
{
    stk_err err = {0};
    char text[900];
    const batch_queue *queue = job->queue;
    const stk_batch_facts facts = facts_of(job);
    if (queue->is_failed) {
        stk_batch_fail(job, STK_FAIL_RESOURCES, "%s", queue->error);
    } else if (job->spec->reads) { /* it needs no definition */
        stk_batch_look(job);
    } else if (!queue->facts.enabled) {
        stk_batch_fail(
            job, STK_FAIL_RESOURCES,
            "queue '%s' is disabled and accepts no jobs; enable it, or use another queue",
            queue->name);
    } else if (stk_batch_ask_read(&job->driver->config, job->spec, &facts, job->arena, &job->ask,
                                  &err) < 0) {
        stk_batch_fail(job, STK_FAIL_RESOURCES, "%s", err.text);
    } else if (!stk_batch_can_hold(queue->environments, queue->n_environments, &job->ask, text,
                                   sizeof text)) {
        stk_batch_fail(job, STK_FAIL_RESOURCES, "%s", text);
    } else {
        job->phase = BATCH_SECRETS;
        with_secrets(job);
    }
}

/* --- secrets: parameters of SSM, of this run, removed when the driver is closed with no job left
 * --- */

static bool is_put(const batch_driver *d, const char *name)
{
    for (uint32_t i = 0; i < d->n_parameters; i++) {
        if (strcmp(d->parameters[i], name) == 0) {
            return true;
        }
    }
    return false;
}

static void keep_parameter(batch_driver *d, const char *name)
{
    if (is_put(d, name)) {
        return;
    }
    const char **more =
        stk_arena_grow(d->arena, d->parameters, d->n_parameters, sizeof *more, &d->cap_parameters);
    if (more != NULL) {
        d->parameters = more;
        more[d->n_parameters] = stk_arena_dup(d->arena, name);
        d->n_parameters += more[d->n_parameters] != NULL;
    }
}

static void secret_answered(void *arg, const stk_batch_answer *answer)
{
    batch_job *job = stk_batch_answered(arg);
    if (job == NULL) {
        return;
    }
    if (answer->rc < 0) {
        stk_batch_fail(job, STK_FAIL_START, "can't put a secret into SSM: %s", answer->err->text);
        return;
    }
    keep_parameter(job->driver, job->secret_at[2 * job->n_secrets + 1]);
    job->n_secrets++;
    with_secrets(job);
}

static void put_secret(batch_job *job, const char *path, const char *value)
{
    STK_BUF_AUTO body = STK_BUF_INIT(1 << 16);
    stk_json_open(&body, NULL, '{');
    stk_json_put_text(&body, "Name", path);
    stk_json_put_text(&body, "Value", value);
    stk_json_put_text(&body, "Type", "SecureString");
    stk_json_put_bool(&body, "Overwrite", true);
    stk_json_close(&body, '}');
    if (body.failed) {
        stk_batch_fail(job, STK_FAIL_START, "the secret for %s exceeds the limit of SSM, 8 KB",
                       path);
    } else {
        stk_batch_job_ask(job, &(stk_batch_ask_call){.lane = STK_BATCH_ASKS,
                                                     .service = "ssm",
                                                     .target = PARAMETERS "PutParameter",
                                                     .body = body.data,
                                                     .done = secret_answered,
                                                     .arg = job});
    }
    if (body.data != NULL) {
        explicit_bzero(body.data, body.len);
    }
}

static void with_secrets(batch_job *job)
{
    const char *const *secret = job->ask.secret;
    const char *prefix = stk_batch_text(&job->ask.options, "secret_prefix");
    uint32_t n = 0;
    while (secret != NULL && secret[n] != NULL) {
        n++;
    }
    if (n > 0 && job->secret_at == NULL) {
        job->secret_at = stk_arena_array(job->arena, 2 * (size_t)n + 1, sizeof *job->secret_at);
    }
    for (; job->n_secrets < n; job->n_secrets++) {
        const char *pair = secret[job->n_secrets];
        size_t n_name = strcspn(pair, "=");
        const char *name = stk_arena_dupn(job->arena, pair, n_name);
        const char *path = stk_arena_printf(job->arena, "%s/%s/%s/%.*s", prefix + strlen("ssm:"),
                                            job->spec->run, job->spec->step, (int)n_name, pair);
        if (name == NULL || path == NULL || pair[n_name] == 0 || job->secret_at == NULL) {
            stk_batch_fail(job, STK_FAIL_START, "out of memory");
            return;
        }
        job->secret_at[2 * job->n_secrets] = name;
        job->secret_at[2 * job->n_secrets + 1] = path;
        if (!is_put(job->driver, path)) {
            put_secret(job, path, pair + n_name + 1);
            return;
        }
    }
    job->ask.facts.secret_at = job->secret_at;
    job->phase = BATCH_DEFINE;
    with_definition(job);
}

void stk_batch_remove_parameters(batch_driver *d)
{
    for (uint32_t i = 0; i < d->n_parameters; i += 10) { /* SSM's limit for one request */
        STK_BUF_AUTO body = STK_BUF_INIT(1 << 16);
        stk_json_open(&body, NULL, '{');
        stk_json_open(&body, "Names", '[');
        for (uint32_t k = i; k < d->n_parameters && k < i + 10; k++) {
            stk_json_put_text(&body, NULL, d->parameters[k]);
        }
        stk_json_close(&body, ']');
        stk_json_close(&body, '}');
        const stk_batch_ask_call call = {.lane = STK_BATCH_ASKS,
                                         .service = "ssm",
                                         .target = PARAMETERS "DeleteParameters",
                                         .body = body.data};
        (void)stk_batch_call(d->calls, &call, NULL);
    }
}

/* --- the definition --- */

static void defined(batch_job *job)
{
    if (job->attach || job->look) {
        stk_batch_look(job);
    } else if (job->is_stopped) {
        stk_batch_fail_unsent(job);
    } else {
        stk_batch_gather(job);
    }
}

static void definition_known(batch_definition *definition, const char *arn)
{
    batch_driver *d = definition->driver;
    (void)snprintf(definition->arn, sizeof definition->arn, "%s", arn);
    for (uint32_t i = 0; i < d->n_jobs; i++) {
        if (d->jobs[i]->definition == definition && d->jobs[i]->phase == BATCH_DEFINE) {
            defined(d->jobs[i]);
        }
    }
}

static void definition_failed(batch_definition *definition, const stk_batch_answer *answer)
{
    batch_driver *d = definition->driver;
    batch_definition **at = &d->definitions;
    bool broken = stk_batch_is_broken(d, answer);
    for (uint32_t i = 0; i < d->n_jobs; i++) {
        if (d->jobs[i]->definition == definition && d->jobs[i]->phase == BATCH_DEFINE && !broken) {
            stk_batch_fail(d->jobs[i], STK_FAIL_RESOURCES,
                           "AWS Batch rejects its job definition: %s",
                           stk_batch_why(answer, "no answer"));
        }
        if (d->jobs[i]->definition == definition) {
            d->jobs[i]->definition = NULL;
        }
    }
    while (*at != definition) {
        at = &(*at)->next;
    }
    *at = definition->next;
}

static void registered(void *arg, const stk_batch_answer *answer)
{
    batch_definition *definition = arg;
    const char *arn = stk_json_get_text(answer->json, "jobDefinitionArn");
    if (arn == NULL) {
        definition_failed(definition, answer);
    } else {
        definition_known(definition, arn);
    }
}

static void ask_definition(batch_definition *definition, const char *path, const char *body,
                           stk_batch_done done)
{
    stk_err err = {0};
    if (stk_batch_call_batch(definition->driver->calls, path, body, done, definition, &err) < 0) {
        definition_failed(definition, &(stk_batch_answer){.rc = err.code, .code = "", .err = &err});
    }
}

static void looked_up(void *arg, const stk_batch_answer *answer)
{
    batch_definition *definition = arg;
    const stk_json *list = stk_json_get(answer->json, "jobDefinitions");
    const char *best = NULL;
    int64_t newest = -1;
    for (uint32_t i = 0; i < stk_json_n_items(list); i++) {
        const stk_json *one = &list->items[i];
        const char *arn = stk_json_get_text(one, "jobDefinitionArn");
        int64_t revision = stk_json_get_whole(one, "revision", -1);
        if (arn != NULL && revision > newest &&
            stk_json_is(stk_json_get(one, "status"), "ACTIVE")) {
            newest = revision;
            best = arn;
        }
    }
    if (best != NULL) {
        definition_known(definition, best);
    } else { /* without the right to look it up, registering decides */
        ask_definition(definition, "/v1/registerjobdefinition", definition->request, registered);
    }
}

static batch_definition *add_definition(batch_job *job, const char *name, const char *request)
{
    batch_driver *d = job->driver;
    batch_definition *definition = stk_arena_alloc(d->arena, sizeof *definition);
    const char *copy = stk_arena_dup(d->arena, request);
    if (definition == NULL || copy == NULL) {
        return NULL;
    }
    *definition = (batch_definition){.next = d->definitions, .driver = d, .request = copy};
    d->definitions = definition;
    (void)snprintf(definition->name, sizeof definition->name, "%s", name);
    return definition;
}

static void with_definition(batch_job *job)
{
    const char *request, *name;
    stk_err err = {0};
    if (stk_batch_definition(&job->ask, job->arena, &request, &name, &err) < 0) {
        stk_batch_fail(job, STK_FAIL_RESOURCES, "%s", err.text);
        return;
    }
    for (batch_definition *one = job->driver->definitions; one != NULL; one = one->next) {
        if (strcmp(one->name, name) == 0) {
            job->definition = one;
            if (one->arn[0] != 0) {
                defined(job);
            }
            return;
        }
    }
    job->definition = add_definition(job, name, request);
    if (job->definition == NULL) {
        stk_batch_fail(job, STK_FAIL_START, "out of memory");
        return;
    }
    STK_BUF_AUTO body = STK_BUF_INIT(4096);
    stk_json_open(&body, NULL, '{');
    stk_json_put_text(&body, "jobDefinitionName", name);
    stk_json_put_text(&body, "status", "ACTIVE");
    stk_json_close(&body, '}');
    ask_definition(job->definition, "/v1/describejobdefinitions", body.data, looked_up);
}
