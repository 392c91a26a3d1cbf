/* A job's way until it can be sent: its queue, its secrets, its definition. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "away/batch/batch_send.h"
#include "base/text.h"

#define PARAMETERS "AmazonSSM."

static void with_queue(batch_job *job);
static void with_secrets(batch_job *job);
static void with_definition(batch_job *job);

/* --- the queue --- */

static void ask_queue(batch_queue *queue, const char *path, const char *body, stk_batch_done done);
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

/* Before anything is submitted: what can't be watched then would run unseen. */
static void ask_to_look(batch_queue *queue)
{
    ask_queue(queue, "/v1/describejobs", "{\"jobs\":[\"00000000-0000-0000-0000-000000000000\"]}",
              look_answered);
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

/* Says why its jobs wait, of what would never let them run. */
static void explain(batch_queue *queue)
{
    char text[400] = "";
    uint32_t n_good = 0;
    const char *name = stk_text_or(queue->facts.name, queue->name);
    for (uint32_t i = 0; i < queue->n_environments; i++) {
        const stk_batch_environment *e = &queue->environments[i];
        bool bad = (e->state != NULL && strcmp(e->state, "ENABLED") != 0) ||
                   (e->status != NULL && strcmp(e->status, "INVALID") == 0);
        n_good += !bad;
        if (bad) {
            (void)snprintf(text, sizeof text, "its compute environment '%s' is %s, %s%s%s", e->name,
                           e->state, stk_text_or(e->status, "status unknown"),
                           e->reason != NULL ? ": " : "", stk_text_or(e->reason, ""));
        }
    }
    queue->waits[0] = 0;
    if (!queue->facts.enabled || !queue->facts.valid) {
        (void)snprintf(queue->waits, sizeof queue->waits, "queue '%s' is %s%s%s", name,
                       !queue->facts.enabled ? "disabled" : "not valid",
                       queue->facts.reason != NULL ? ": " : "",
                       stk_text_or(queue->facts.reason, ""));
    } else if (n_good == 0 && text[0] != 0) {
        (void)snprintf(queue->waits, sizeof queue->waits, "queue '%s': %s", name, text);
    }
}

static void environments_answered(void *arg, const stk_batch_answer *answer)
{
    batch_queue *queue = arg;
    queue->is_asked = false;
    /* Who may not look at them can submit all the same. */
    const stk_json *kept = answer->json != NULL ? stk_batch_keep(answer->json, queue->arena) : NULL;
    if (kept != NULL) {
        (void)stk_batch_environments_read(kept, queue->arena, &queue->environments,
                                          &queue->n_environments);
    }
    explain(queue);
    queue_known(queue);
}

static void ask_queue(batch_queue *queue, const char *path, const char *body, stk_batch_done done)
{
    stk_err err = {0};
    const stk_batch_ask_call call = {.lane = STK_BATCH_ASKS,
                                     .service = "batch",
                                     .path = path,
                                     .body = body,
                                     .done = done,
                                     .arg = queue};
    queue->is_asked = true;
    if (stk_batch_call(queue->driver->calls, &call, &err) < 0) {
        queue_failed(queue, err.text);
    }
}

static void queue_answered(void *arg, const stk_batch_answer *answer)
{
    batch_queue *queue = arg;
    char text[1024];
    queue->is_asked = false;
    if (answer->rc < 0 || answer->json == NULL) {
        const char *said = answer->err != NULL ? answer->err->text : "no answer";
        bool denied = strstr(answer->code, "AccessDenied") != NULL;
        /* Without the right to look, what it is isn't known: a queue of EC2 instances then. */
        queue->facts = (stk_batch_queue){.found = true, .enabled = true, .valid = true};
        if (denied) {
            queue_known(queue);
            return;
        }
        if (stk_batch_is_broken(queue->driver, answer)) {
            return;
        }
        (void)snprintf(text, sizeof text, "queue '%s': %s", queue->name, said);
        queue_failed(queue, text);
        return;
    }
    stk_arena *arena = stk_arena_new(0);
    const stk_json *kept = arena != NULL ? stk_batch_keep(answer->json, arena) : NULL;
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
                       "AWS Batch in %s has no job queue '%s'; name one that 'aws batch "
                       "describe-job-queues' shows",
                       queue->driver->region, queue->name);
        queue_failed(queue, text);
        return;
    }
    STK_BUF_AUTO body = STK_BUF_INIT(1 << 16);
    (void)stk_buf_char(&body, '{');
    stk_json_put_key(&body, "computeEnvironments");
    (void)stk_buf_char(&body, '[');
    for (uint32_t i = 0; i < queue->facts.n_environments; i++) {
        stk_batch_put_comma(&body);
        (void)stk_buf_json(&body, queue->facts.environments[i]);
    }
    (void)stk_buf_text(&body, "]}");
    if (queue->facts.n_environments == 0) {
        queue_known(queue);
    } else {
        ask_queue(queue, "/v1/describecomputeenvironments", body.data, environments_answered);
    }
}

void stk_batch_queue_look(batch_queue *queue)
{
    STK_BUF_AUTO body = STK_BUF_INIT(4096);
    if (queue->is_asked) {
        return;
    }
    (void)stk_buf_char(&body, '{');
    stk_batch_put_list(&body, "jobQueues", queue->name);
    (void)stk_buf_char(&body, '}');
    ask_queue(queue, "/v1/describejobqueues", body.data, queue_answered);
}

static batch_queue *get_queue(batch_driver *d, const char *name)
{
    for (batch_queue *q = d->queues; q != NULL; q = q->next) {
        if (strcmp(q->name, name) == 0) {
            return q;
        }
    }
    batch_queue *queue = calloc(1, sizeof *queue);
    char *copy = strdup(name);
    if (queue == NULL || copy == NULL) {
        free(queue);
        free(copy);
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
    const char *type = queue->n_environments > 0 ? queue->environments[0].type : NULL;
    bool fargate = type != NULL && strncmp(type, "FARGATE", 7) == 0;
    return (stk_batch_facts){.platform_known = type != NULL,
                             .platform = fargate ? STK_BATCH_FARGATE : STK_BATCH_EC2,
                             .region = job->driver->region,
                             .secret_at = job->secret_at};
}

static void with_queue(batch_job *job)
{
    stk_err err = {0};
    char text[900];
    const batch_queue *queue = job->queue;
    const stk_batch_facts facts = facts_of(job);
    if (queue->is_failed) {
        stk_batch_fail(job, STK_FAIL_RESOURCES, "%s", queue->error);
    } else if (!queue->facts.enabled) {
        stk_batch_fail(job, STK_FAIL_RESOURCES,
                       "queue '%s' is disabled and takes no jobs; enable it or name another one",
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

static void keep_parameter(batch_driver *d, const char *name)
{
    for (uint32_t i = 0; i < d->n_parameters; i++) {
        if (strcmp(d->parameters[i], name) == 0) {
            return;
        }
    }
    char **more = realloc(d->parameters, (d->n_parameters + 1) * sizeof *more);
    if (more != NULL) {
        d->parameters = more;
        more[d->n_parameters] = strdup(name);
        d->n_parameters += more[d->n_parameters] != NULL;
    }
}

static bool is_put(const batch_driver *d, const char *name)
{
    for (uint32_t i = 0; i < d->n_parameters; i++) {
        if (strcmp(d->parameters[i], name) == 0) {
            return true;
        }
    }
    return false;
}

static void secret_answered(void *arg, const stk_batch_answer *answer)
{
    batch_job *job = stk_batch_answered(arg);
    if (job == NULL) {
        return;
    }
    if (answer->rc < 0) {
        stk_batch_fail(job, STK_FAIL_START, "a secret couldn't be put into SSM: %s",
                       answer->err->text);
        return;
    }
    keep_parameter(job->driver, job->secret_at[2 * job->n_secrets + 1]);
    job->n_secrets++;
    with_secrets(job);
}

static void put_secret(batch_job *job, const char *path, const char *value)
{
    STK_BUF_AUTO body = STK_BUF_INIT(1 << 16);
    (void)stk_buf_char(&body, '{');
    stk_json_put_text(&body, "Name", path);
    stk_json_put_text(&body, "Value", value);
    stk_json_put_text(&body, "Type", "SecureString");
    stk_json_put_bool(&body, "Overwrite", true);
    (void)stk_buf_char(&body, '}');
    if (body.failed) {
        stk_batch_fail(job, STK_FAIL_START,
                       "the secret for %s is too long for SSM, which takes 8 KB", path);
    } else {
        stk_batch_job_ask(job, STK_BATCH_ASKS, "ssm", NULL, PARAMETERS "PutParameter", body.data,
                          false, secret_answered);
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
        const char *equals = strchr(secret[job->n_secrets], '=');
        const char *name = equals == NULL
                               ? NULL
                               : stk_arena_dupn(job->arena, secret[job->n_secrets],
                                                (size_t)(equals - secret[job->n_secrets]));
        const char *path =
            name == NULL ? NULL
                         : stk_arena_printf(job->arena, "%s/%s/%s/%s", prefix + strlen("ssm:"),
                                            job->spec->run, job->spec->step, name);
        if (path == NULL || job->secret_at == NULL) {
            stk_batch_fail(job, STK_FAIL_START, "out of memory");
            return;
        }
        job->secret_at[2 * job->n_secrets] = name;
        job->secret_at[2 * job->n_secrets + 1] = path;
        if (!is_put(job->driver, path)) {
            put_secret(job, path, equals + 1);
            return;
        }
    }
    job->ask.facts.secret_at = job->secret_at;
    job->phase = BATCH_DEFINE;
    with_definition(job);
}

static void parameters_answered(void *arg, const stk_batch_answer *answer)
{
    (void)arg;
    (void)answer;
}

void stk_batch_remove_parameters(batch_driver *d)
{
    for (uint32_t i = 0; i < d->n_parameters; i += 10) { /* so many at once, at most */
        STK_BUF_AUTO body = STK_BUF_INIT(1 << 16);
        (void)stk_buf_text(&body, "{\"Names\":[");
        for (uint32_t k = i; k < d->n_parameters && k < i + 10; k++) {
            stk_batch_put_comma(&body);
            (void)stk_buf_json(&body, d->parameters[k]);
        }
        (void)stk_buf_text(&body, "]}");
        const stk_batch_ask_call call = {.lane = STK_BATCH_ASKS,
                                         .service = "ssm",
                                         .target = PARAMETERS "DeleteParameters",
                                         .body = body.data,
                                         .done = parameters_answered};
        (void)stk_batch_call(d->calls, &call, NULL);
    }
}

/* --- the definition --- */

static void defined(batch_job *job)
{
    if (job->attach || job->look) {
        stk_batch_look(job);
    } else if (job->is_stopped) {
        stk_batch_fail(job, job->why, "%s", "ended before it was submitted");
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
            stk_batch_fail(d->jobs[i], STK_FAIL_RESOURCES, "its job definition is refused: %s",
                           answer->err != NULL ? answer->err->text : "no answer");
        }
        if (d->jobs[i]->definition == definition) {
            d->jobs[i]->definition = NULL;
        }
    }
    while (*at != definition) {
        at = &(*at)->next;
    }
    *at = definition->next;
    free(definition->request);
    free(definition);
}

static void registered(void *arg, const stk_batch_answer *answer)
{
    batch_definition *definition = arg;
    const char *arn = stk_json_text(stk_json_get(answer->json, "jobDefinitionArn"));
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
    const stk_batch_ask_call call = {.lane = STK_BATCH_ASKS,
                                     .service = "batch",
                                     .path = path,
                                     .body = body,
                                     .done = done,
                                     .arg = definition};
    if (stk_batch_call(definition->driver->calls, &call, &err) < 0) {
        definition_failed(definition, &(stk_batch_answer){.rc = err.code, .code = "", .err = &err});
    }
}

static void looked_up(void *arg, const stk_batch_answer *answer)
{
    batch_definition *definition = arg;
    const stk_json *list = stk_json_get(answer->json, "jobDefinitions");
    const char *best = NULL;
    int64_t newest = -1;
    for (uint32_t i = 0; list != NULL && list->kind == STK_JSON_LIST && i < list->n; i++) {
        int64_t revision = 0;
        const char *arn = stk_json_text(stk_json_get(&list->items[i], "jobDefinitionArn"));
        const stk_json *node = stk_json_get(&list->items[i], "revision");
        bool active = stk_json_is(stk_json_get(&list->items[i], "status"), "ACTIVE");
        if (arn != NULL && active && node != NULL && stk_json_int(node, &revision) &&
            revision > newest) {
            newest = revision;
            best = arn;
        }
    }
    if (best != NULL) {
        definition_known(definition, best);
    } else { /* also where we may not look: registering tells */
        ask_definition(definition, "/v1/registerjobdefinition", definition->request, registered);
    }
}

static batch_definition *add_definition(batch_job *job, const char *name, const char *request)
{
    batch_driver *d = job->driver;
    batch_definition *definition = calloc(1, sizeof *definition);
    if (definition == NULL || (definition->request = strdup(request)) == NULL) {
        free(definition);
        return NULL;
    }
    definition->driver = d;
    definition->next = d->definitions;
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
    (void)stk_buf_char(&body, '{');
    stk_json_put_text(&body, "jobDefinitionName", name);
    stk_json_put_text(&body, "status", "ACTIVE");
    (void)stk_buf_char(&body, '}');
    ask_definition(job->definition, "/v1/describejobdefinitions", body.data, looked_up);
}
