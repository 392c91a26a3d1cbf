/* SubmitJob. Jobs that differ only in their attempt gather for a moment, so that the tasks of a
 * wide step become array jobs. A list in the share, written before the array is submitted, names
 * the attempt of each child. The array's name contains the list's digest, so it can be searched and
 * submitted again as any job (batch_find.c). */
#include "away/batch/batch_send.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/failpoint.h"
#include "base/text.h"

enum {
    QUIET_MS = 100,  /* time without a new job, after which a send goes */
    LINGER_MS = 500, /* … and the most time that it gathers */
    ERRAND_MS = 5,   /* between checks whether a list is in the share */
    ERRANDS = 8,     /* lists written at once */
    AGAIN_MS = 2000,
    FINDS = 3,
    LINK_MS = 60000,         /* time for which a link is used */
    LINK_SECONDS = 7 * 86400 /* AWS's most time for a signed link */
};

static void submit(batch_send *send);

/* --- the request --- */

/* A link to our program's archive for images that have only curl or wget; NULL: the share isn't S3.
 */
static const char *carry_link(batch_driver *d)
{
    const char *share = d->config.share_url;
    char endpoint[512];
    bool custom;
    int64_t now = stk_batch_now_ms();
    if (d->link != NULL && now - d->link_ms < LINK_MS) {
        return d->link;
    }
    if (strcmp(d->config.carry, "store") != 0 || share == NULL || strncmp(share, "s3://", 5) != 0 ||
        d->config.carry_digest == NULL ||
        stk_aws_endpoint(d->aws, "s3", endpoint, sizeof endpoint, &custom, NULL) < 0) {
        return NULL;
    }
    const char *bucket = share + 5;
    size_t n = strcspn(bucket, "/"), rest = strlen(bucket + n);
    rest -= rest > 0 && bucket[n + rest - 1] == '/';
    STK_BUF_AUTO url = STK_BUF_INIT(4096);
    STK_BUF_AUTO path = STK_BUF_INIT(4096);
    STK_BUF_AUTO signed_url = STK_BUF_INIT(16384);
    (void)stk_buf_printf(&url, "%s/%.*s", endpoint, (int)n, bucket);
    (void)stk_buf_printf(&path, "%.*s/carry/%s.tar", (int)rest, bucket + n, d->config.carry_digest);
    if (path.failed) {
        return NULL;
    }
    stk_aws_encode(&url, path.data, true);
    if (url.failed ||
        stk_aws_presign(d->aws, "s3", NULL, "GET", url.data, LINK_SECONDS, &signed_url, NULL) < 0) {
        return NULL;
    }
    free(d->link);
    d->link = strdup(signed_url.data);
    d->link_ms = now;
    return d->link;
}

/* SubmitJob of an array of `n`, whose agents get `list` instead of a key; n 0: any number. */
static int array_request(const stk_batch_ask *ask, const char *definition, const char *name,
                         const char *list, uint32_t n, stk_arena *arena, const char **ret_request,
                         stk_err *err)
{
    stk_batch_ask many = *ask;
    stk_remote_job *job = stk_arena_alloc(arena, sizeof *job);
    uint32_t n_words = 0;
    while (ask->job->argv[n_words] != NULL) {
        n_words++;
    }
    const char **argv = stk_arena_array(arena, (size_t)n_words + 1, sizeof *argv);
    if (job == NULL || argv == NULL) {
        return stk_err_nomem(err);
    }
    memcpy(argv, ask->job->argv, n_words * sizeof *argv);
    argv[n_words - 1] = list; /* replaces the key */
    *job = *ask->job;
    job->name = name;
    job->argv = argv;
    many.job = job;
    many.is_array = true;
    many.n_children = n;
    return stk_batch_submit(&many, definition, arena, ret_request, err);
}

/* Jobs are alike if their requests are the same without the members that only one attempt has. */
static int form_of(const batch_job *job, char ret[STK_DIGEST_HEX + 1], stk_err *err)
{
    const char *request = NULL;
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    STK_TRY(array_request(&job->ask, job->definition->arn, "", "", 0, scratch, &request, err));
    stk_digest_of(request, strlen(request), ret);
    return 0;
}

static uint32_t array_min(const batch_job *job)
{
    int64_t n = stk_batch_whole(&job->ask.options, "array_min");
    if (n < 0) {
        return STK_BATCH_ARRAY_MIN;
    }
    return n == 1 ? 2 : (uint32_t)n;
}

int stk_batch_array_preview(const stk_batch_ask *ask, const char *definition, stk_arena *arena,
                            const char **ret_request, stk_err *err)
{
    stk_remote_array array;
    STK_TRY(stk_remote_array_preview(ask->job->run, ask->job->name, arena, &array, err));
    return array_request(ask, definition, array.name, array.key, 0, arena, ret_request, err);
}

/* --- gathering --- */

static batch_send *new_send(batch_driver *d, const char *form)
{
    batch_send *send = calloc(1, sizeof *send);
    stk_arena *arena = stk_arena_new(0);
    if (send == NULL || arena == NULL) {
        free(send);
        stk_arena_free(arena);
        return NULL;
    }
    *send =
        (batch_send){.next = d->sends, .driver = d, .arena = arena, .first_ms = stk_batch_now_ms()};
    (void)snprintf(send->form, sizeof send->form, "%s", form);
    d->sends = send;
    return send;
}

static void free_send(batch_send *send)
{
    batch_send **at = &send->driver->sends;
    while (*at != send) {
        at = &(*at)->next;
    }
    *at = send->next;
    stk_batch_errand_drop(send->errand);
    stk_arena_free(send->arena);
    free(send);
}

/* Adds a job, and keeps it from being freed. */
static int add_job(batch_send *send, batch_job *job)
{
    batch_job **jobs = stk_arena_grow(send->arena, send->jobs, send->n, sizeof *jobs, &send->cap);
    STK_TRY(stk_err_if_null(jobs, NULL));
    send->jobs = jobs;
    job->refs++;
    send->jobs[send->n++] = job;
    send->last_ms = stk_batch_now_ms();
    return 0;
}

void stk_batch_gather(batch_job *job)
{
    char form[STK_DIGEST_HEX + 1] = "";
    stk_err err = {0};
    batch_driver *d = job->driver;
    bool may_be_child = job->nodes == 1 && job->spec->key != NULL && array_min(job) > 0;
    if (may_be_child && form_of(job, form, &err) < 0) {
        stk_batch_fail(job, STK_FAIL_RESOURCES, "%s", err.text);
        return;
    }
    batch_send *send = d->sends;
    while (send != NULL && !(may_be_child && send->name[0] == 0 && send->n < STK_BATCH_ARRAY_MAX &&
                             strcmp(send->form, form) == 0)) {
        send = send->next;
    }
    if (send == NULL) {
        send = new_send(d, form);
    }
    if (send == NULL || add_job(send, job) < 0) {
        stk_batch_fail(job, STK_FAIL_START, "out of memory");
    } else {
        job->phase = BATCH_GATHER;
    }
}

/* --- sending --- */

/* Releases its jobs. Calls fn (or NULL) for the ones that haven't ended meanwhile. */
static void let_go(batch_send *send, void (*fn)(batch_job *job, uint32_t index, void *arg),
                   void *arg)
{
    for (uint32_t i = 0; i < send->n; i++) {
        batch_job *job = stk_batch_answered(send->jobs[i]);
        if (job != NULL && fn != NULL) {
            fn(job, i, arg);
        }
    }
    send->n = 0;
    free_send(send);
}

static void fail_one(batch_job *job, uint32_t index, void *arg)
{
    const stk_batch_answer *answer = arg;
    (void)index;
    stk_batch_fail(job, STK_FAIL_RESOURCES, "AWS Batch rejects the job: %s",
                   stk_batch_why(answer, "its answer has no job id"));
}

static void fail_plainly(batch_job *job, uint32_t index, void *arg)
{
    const stk_err *err = arg;
    (void)index;
    stk_batch_fail(job, err->code == STK_E_SPEC ? STK_FAIL_RESOURCES : STK_FAIL_START, "%s",
                   err->text);
}

static void live_alone(batch_job *job, uint32_t index, void *arg)
{
    (void)index;
    stk_batch_live(job, arg);
}

static void live_child(batch_job *job, uint32_t index, void *arg)
{
    stk_batch_live_child(job, arg, index);
}

static bool is_array(const batch_send *send)
{
    return send->list.key != NULL;
}

static void sent(batch_send *send, const char *aws_id)
{
    char id[64];
    (void)snprintf(id, sizeof id, "%s", aws_id);
    STK_FAILPOINT("batch.submit.after");
    let_go(send, is_array(send) ? live_child : live_alone, id);
}

static void submitted(void *arg, const stk_batch_answer *answer)
{
    batch_send *send = arg;
    const char *id = stk_json_get_text(answer->json, "jobId");
    if (id != NULL) {
        sent(send, id);
    } else if (answer->maybe_done) { /* a lost answer: the job may exist */
        send->find = stk_batch_find(send->driver, send->jobs[0]->queue, send->name, FINDS,
                                    stk_batch_now_ms() + AGAIN_MS);
        if (send->find == NULL) {
            let_go(send, fail_plainly, &(stk_err){.code = STK_E_NOMEM, .text = "out of memory"});
        }
    } else if (!stk_batch_is_broken(send->driver, answer)) {
        let_go(send, fail_one, (void *)(uintptr_t)answer);
    }
}

void stk_batch_send_found(batch_send *send)
{
    bool any = false;
    for (uint32_t i = 0; i < send->n; i++) {
        any = any || send->jobs[i]->phase == BATCH_SEND;
    }
    const batch_find *find = send->find;
    send->find = NULL;
    if (!any) {
        let_go(send, NULL, NULL);
    } else if (find->aws_id[0] != 0) {
        sent(send, find->aws_id);
    } else { /* searched without success */
        submit(send);
    }
}

static void submit(batch_send *send)
{
    stk_err err = {0};
    STK_FAILPOINT("batch.submit.before");
    const stk_batch_ask_call call = {.lane = STK_BATCH_SUBMITS,
                                     .service = "batch",
                                     .path = "/v1/submitjob",
                                     .body = send->request,
                                     .once = true,
                                     .done = submitted,
                                     .arg = send};
    if (stk_batch_call(send->driver->calls, &call, &err) < 0) {
        let_go(send, fail_plainly, &err);
    }
}

static int make_request(batch_send *send, stk_err *err)
{
    batch_job *first = send->jobs[0];
    first->ask.facts.carry_link = carry_link(send->driver);
    if (is_array(send)) {
        return array_request(&first->ask, first->definition->arn, send->name, send->list.key,
                             send->n, send->arena, &send->request, err);
    }
    return stk_batch_submit(&first->ask, first->definition->arn, send->arena, &send->request, err);
}

static int make_list(batch_send *send, stk_err *err)
{
    const char **keys = stk_arena_array(send->arena, send->n, sizeof *keys);
    STK_TRY(stk_err_if_null(keys, err));
    for (uint32_t i = 0; i < send->n; i++) {
        keys[i] = send->jobs[i]->spec->key;
    }
    STK_TRY(stk_remote_array_make(send->driver->config.run, send->jobs[0]->name, keys, send->n,
                                  send->arena, &send->list, err));
    (void)snprintf(send->name, sizeof send->name, "%s", send->list.name);
    return 0;
}

static void send_array(batch_send *send)
{
    stk_err err = {0};
    if (make_list(send, &err) == 0 && make_request(send, &err) == 0) {
        send->errand = stk_batch_errand_begin(send->driver, &send->list, &err);
    }
    if (send->errand == NULL) {
        let_go(send, fail_plainly, &err);
    }
}

static void send_alone(batch_send *send)
{
    stk_err err = {0};
    (void)snprintf(send->name, sizeof send->name, "%s", send->jobs[0]->name);
    if (make_request(send, &err) < 0) {
        let_go(send, fail_plainly, &err);
    } else {
        submit(send);
    }
}

/* Submits the jobs of a too small send one by one. */
static void part(batch_send *send)
{
    while (send->n > 0) {
        batch_job *job = send->jobs[send->n - 1];
        batch_send *alone = new_send(send->driver, "");
        if (alone == NULL || add_job(alone, job) < 0) {
            break;
        }
        send->n--;
        job->refs--; /* the new send holds the job */
        send_alone(alone);
    }
    if (send->n > 0) {
        let_go(send, fail_plainly, &(stk_err){.code = STK_E_NOMEM, .text = "out of memory"});
    } else {
        free_send(send);
    }
}

/* Drops the jobs that were stopped meanwhile. */
static void drop_ended(batch_send *send)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < send->n; i++) {
        batch_job *job = stk_batch_answered(send->jobs[i]);
        if (job != NULL && job->is_stopped) {
            stk_batch_fail_unsent(job);
        } else if (job != NULL) {
            job->refs++;
            job->phase = BATCH_SEND;
            send->jobs[kept++] = job;
        }
    }
    send->n = kept;
}

static void gathered(batch_send *send)
{
    drop_ended(send);
    if (send->n == 0) {
        free_send(send);
    } else if (send->form[0] != 0 && send->n >= array_min(send->jobs[0])) {
        send_array(send);
    } else if (send->n == 1) {
        send_alone(send);
    } else {
        part(send);
    }
}

static void listed(batch_send *send)
{
    stk_err err = {0};
    batch_errand *errand = send->errand;
    send->errand = NULL;
    if (stk_batch_errand_end(errand, &err) < 0) {
        (void)stk_err_context(&err, "can't put the list of an array job into the share");
        let_go(send, fail_plainly, &err);
    } else {
        submit(send);
    }
}

/* Milliseconds until it may be submitted; 0: now. */
static int64_t gathers_for(const batch_send *send, int64_t now_ms)
{
    int64_t quiet = send->last_ms + QUIET_MS - now_ms, linger = send->first_ms + LINGER_MS - now_ms;
    if (send->form[0] == 0 || send->n >= STK_BATCH_ARRAY_MAX) {
        return 0;
    }
    return MAX(MIN(quiet, linger), 0);
}

int64_t stk_batch_send_due(batch_driver *d, int64_t now_ms)
{
    int64_t wait = -1;
    for (batch_send *send = d->sends, *next; send != NULL; send = next) {
        next = send->next; /* new sends are added before it */
        int64_t more = -1;
        if (send->errand != NULL && stk_batch_errand_is_over(send->errand)) {
            listed(send);
        } else if (send->errand != NULL) {
            more = ERRAND_MS;
        } else if (send->name[0] == 0) {
            more = d->n_errands < ERRANDS ? gathers_for(send, now_ms) : ERRAND_MS;
            if (more == 0) {
                gathered(send);
                more = d->n_errands > 0 ? ERRAND_MS : -1; /* write its list now */
            }
        }
        wait = stk_batch_sooner(wait, more);
    }
    return d->lists != NULL ? stk_batch_sooner(wait, ERRAND_MS) : wait;
}

void stk_batch_sends_free(batch_driver *d)
{
    for (batch_send *send = d->sends, *next; send != NULL; send = next) {
        next = send->next;
        free_send(send);
    }
    free(d->link);
}
