/* Searches jobs that an earlier engine, or a SubmitJob with a lost answer, may have submitted: by
 * their own names, and by the arrays whose lists name them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "away/batch/batch_send.h"
#include "base/text.h"

enum {
    FIND_AGAIN_MS = 2000, /* ListJobs may not know a new job yet */
    FINDS = 3,
    FEW = 4 /* so few names get one request each, because a run may have many other jobs */
};

static void look_next(batch_job *job);

/* --- by name --- */

static void end_double(batch_driver *d, const char *aws_id)
{
    STK_BUF_AUTO body = STK_BUF_INIT(4096);
    stk_json_open(&body, NULL, '{');
    stk_json_put_text(&body, "jobId", aws_id);
    stk_json_put_text(&body, "reason", "stoker: the same job was submitted twice");
    stk_json_close(&body, '}');
    (void)stk_batch_call_batch(d->calls, "/v1/terminatejob", body.data, NULL, NULL, NULL);
}

static void known(batch_find *find)
{
    batch_driver *d = find->driver;
    find->is_known = true;
    for (uint32_t i = 0; i < d->n_jobs; i++) {
        if (d->jobs[i]->phase == BATCH_LOOK && d->jobs[i]->find == find) {
            look_next(d->jobs[i]);
        }
    }
    for (batch_send *send = d->sends, *next; send != NULL; send = next) {
        next = send->next;
        if (send->find == find) {
            stk_batch_send_found(send);
        }
    }
}

static void find_failed(batch_find *find, const stk_err *err)
{
    batch_driver *d = find->driver;
    for (uint32_t i = 0; i < d->n_jobs; i++) {
        batch_job *job = d->jobs[i];
        bool waits = job->phase == BATCH_LOOK && job->find == find;
        for (const batch_send *send = d->sends; send != NULL && !waits; send = send->next) {
            for (uint32_t k = 0; send->find == find && k < send->n && !waits; k++) {
                waits = send->jobs[k] == job;
            }
        }
        if (waits && job->phase != BATCH_DONE) {
            d->n_looking -= job->phase == BATCH_LOOK;
            stk_batch_fail(job, STK_FAIL_LOST, "can't tell whether AWS Batch has job '%s': %s",
                           find->name, err->text);
        }
    }
    known(find);
}

static int by_find_name(const void *a, const void *b)
{
    const batch_find *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static void drop_listing(batch_listing *l)
{
    batch_listing **at = &l->queue->driver->listings;
    while (*at != l) {
        at = &(*at)->next;
    }
    *at = l->next;
    l->queue->n_listings--;
    free(l->finds);
    free(l);
}

static void listing_failed(batch_listing *l, const stk_err *err)
{
    for (uint32_t i = 0; i < l->n; i++) {
        find_failed(l->finds[i], err);
    }
    drop_listing(l);
}

static void listing_over(batch_listing *l)
{
    for (uint32_t i = 0; i < l->n; i++) {
        batch_find *find = l->finds[i];
        if (find->aws_id[0] == 0 && --find->n_left > 0) {
            find->due_ms = stk_batch_now_ms() + FIND_AGAIN_MS;
        } else {
            known(find);
        }
    }
    drop_listing(l);
}

/* Checks whether a listed job is searched. */
static void listed(batch_listing *l, const char *name, const char *id)
{
    batch_find wanted, *key = &wanted;
    if (name == NULL || id == NULL || strlen(name) >= sizeof wanted.name) {
        return;
    }
    (void)snprintf(wanted.name, sizeof wanted.name, "%s", name);
    batch_find **at = bsearch(&key, l->finds, l->n, sizeof(batch_find *), by_find_name);
    if (at != NULL && (*at)->aws_id[0] == 0) {
        (void)snprintf((*at)->aws_id, sizeof(*at)->aws_id, "%s", id);
    } else if (at != NULL && strcmp((*at)->aws_id, id) != 0) {
        end_double(l->queue->driver, id);
    }
}

static void ask_page(batch_listing *l, const char *token);

static void page(void *arg, const stk_batch_answer *answer)
{
    batch_listing *l = arg;
    const stk_json *list = stk_json_get(answer->json, "jobSummaryList");
    const char *token = stk_json_get_text(answer->json, "nextToken");
    if (answer->rc < 0) {
        if (stk_batch_is_broken(l->queue->driver, answer)) {
            drop_listing(l);
        } else {
            listing_failed(l, answer->err);
        }
        return;
    }
    for (uint32_t i = 0; i < stk_json_n_items(list); i++) {
        listed(l, stk_json_get_text(&list->items[i], "jobName"),
               stk_json_get_text(&list->items[i], "jobId"));
    }
    if (token != NULL && token[0] != 0) {
        ask_page(l, token);
    } else {
        listing_over(l);
    }
}

/* Asks for the next page: of one name, or of all names with our common beginning. */
static void ask_page(batch_listing *l, const char *token)
{
    STK_BUF_AUTO body = STK_BUF_INIT(16384);
    stk_err err = {0};
    char names[STK_BATCH_NAME + 2];
    const char *first = l->finds[0]->name, *last = l->finds[l->n - 1]->name;
    size_t same = 0;
    while (first[same] != 0 && first[same] == last[same]) {
        same++;
    }
    (void)snprintf(names, sizeof names, "%.*s%s", (int)same, first, stk_text_when(l->n > 1, "*"));
    stk_json_open(&body, NULL, '{');
    stk_json_put_text(&body, "jobQueue", l->queue->name);
    const char *const values[] = {names, NULL};
    stk_json_open(&body, "filters", '[');
    stk_json_open(&body, NULL, '{');
    stk_json_put_text(&body, "name", "JOB_NAME");
    stk_json_put_texts(&body, "values", values);
    stk_json_close(&body, '}');
    stk_json_close(&body, ']');
    if (token != NULL) {
        stk_json_put_text(&body, "nextToken", token);
    }
    stk_json_close(&body, '}');
    if (stk_batch_call_batch(l->queue->driver->calls, "/v1/listjobs", body.data, page, l, &err) <
        0) {
        listing_failed(l, &err);
    }
}

/* Asks for these names with one request, plus one for each further page. */
static void list(batch_queue *queue, batch_find **finds, uint32_t n)
{
    batch_driver *d = queue->driver;
    batch_listing *l = calloc(1, sizeof *l);
    batch_find **mine = calloc(n, sizeof *mine);
    if (l == NULL || mine == NULL) { /* the next turn tries again */
        free(l);
        free(mine);
        return;
    }
    memcpy(mine, finds, n * sizeof *mine);
    qsort(mine, n, sizeof *mine, by_find_name);
    *l = (batch_listing){.next = d->listings, .queue = queue, .finds = mine, .n = n};
    d->listings = l;
    queue->n_listings++;
    for (uint32_t i = 0; i < n; i++) {
        mine[i]->due_ms = 0;
    }
    ask_page(l, NULL);
}

/* Asks for all due names of the queue; names that come during a request gather for the next. */
static void list_due(batch_queue *queue, int64_t now_ms)
{
    uint32_t n = 0, cap = 0;
    batch_find **due = NULL;
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    for (batch_find *find = queue->driver->finds; find != NULL; find = find->next) {
        if (find->queue != queue || find->is_known || find->due_ms == 0 || find->due_ms > now_ms) {
            continue;
        }
        batch_find **more = stk_arena_grow(scratch, due, n, sizeof *due, &cap);
        if (more == NULL) {
            break;
        }
        due = more;
        due[n++] = find;
    }
    if (n > FEW) {
        list(queue, due, n);
    }
    for (uint32_t i = 0; n <= FEW && i < n; i++) {
        list(queue, &due[i], 1);
    }
}

batch_find *stk_batch_find(batch_driver *d, batch_queue *queue, const char *name, uint32_t n_tries,
                           int64_t due_ms)
{
    batch_find *find = stk_arena_alloc(d->arena, sizeof *find);
    if (find != NULL) {
        *find = (batch_find){
            .next = d->finds, .driver = d, .queue = queue, .n_left = n_tries, .due_ms = due_ms};
        (void)snprintf(find->name, sizeof find->name, "%s", name);
        d->finds = find;
    }
    return find;
}

/* --- a job --- */

/* One search serves all children of an array. */
static batch_find *find_array(batch_job *job, const char *name)
{
    for (batch_find *find = job->driver->finds; find != NULL; find = find->next) {
        if (find->queue == job->queue && strcmp(find->name, name) == 0) {
            return find;
        }
    }
    return stk_batch_find(job->driver, job->queue, name, FINDS, 1);
}

static void not_there(batch_job *job)
{
    if (job->is_stopped) {
        stk_batch_fail_unsent(job);
    } else if (job->attach) {
        stk_batch_fail(job, STK_FAIL_LOST, "AWS Batch no longer has job '%s'", job->name);
    } else {
        stk_batch_gather(job);
    }
}

static void attach(batch_job *job)
{
    if (job->child != NULL) {
        stk_batch_live_child(job, job->find->aws_id, job->child->index);
    } else {
        stk_batch_live(job, job->find->aws_id);
    }
}

/* After the lists or its last search are known: tries each array that names the job, then its own
 * name. */
static void look_next(batch_job *job)
{
    uint64_t first = 0;
    batch_driver *d = job->driver;
    while (job->phase == BATCH_LOOK) {
        bool is_last = job->find != NULL && job->child == NULL;
        if (job->find != NULL && (job->find->aws_id[0] != 0 || is_last)) {
            d->n_looking--;
            if (job->find->aws_id[0] != 0) {
                attach(job);
            } else {
                not_there(job);
            }
            return;
        }
        if (job->find == NULL) {
            (void)(job->spec->key != NULL && stk_map_get(&d->children, job->spec->key, &first));
            job->child = (const stk_remote_child *)(uintptr_t)first;
        } else {
            job->child = job->child->next;
        }
        if (job->child != NULL) {
            job->find = find_array(job, job->child->array);
        } else {
            job->find = stk_batch_find(d, job->queue, job->name, job->attach ? FINDS : 1, 1);
        }
        if (job->find == NULL) {
            d->n_looking--;
            stk_batch_fail(job, STK_FAIL_LOST, "out of memory");
        } else if (!job->find->is_known) {
            return;
        }
    }
}

/* --- the lists of arrays --- */

static void lists_failed(batch_driver *d, const stk_err *err)
{
    for (uint32_t i = 0; i < d->n_jobs; i++) {
        if (d->jobs[i]->phase == BATCH_LOOK && d->jobs[i]->find == NULL) {
            d->n_looking--;
            stk_batch_fail(d->jobs[i], STK_FAIL_LOST, "can't tell whether it was submitted: %s",
                           err->text);
        }
    }
}

static void lists_known(batch_driver *d)
{
    stk_err err = {0};
    batch_errand *lists = d->lists;
    d->lists = NULL;
    if (stk_batch_errand_end(lists, &err) < 0) {
        lists_failed(d, &err);
        return;
    }
    for (uint32_t i = 0; i < d->n_jobs; i++) {
        if (d->jobs[i]->phase == BATCH_LOOK && d->jobs[i]->find == NULL) {
            look_next(d->jobs[i]);
        }
    }
}

void stk_batch_look(batch_job *job)
{
    stk_err err = {0};
    batch_driver *d = job->driver;
    job->phase = BATCH_LOOK;
    d->n_looking++;
    if (d->lists_arena != NULL || job->spec->key == NULL) { /* without a key: in no array */
        look_next(job);
    } else if (d->lists == NULL) {
        d->lists = stk_batch_errand_begin(d, NULL, &err);
        if (d->lists == NULL) {
            lists_failed(d, &err);
        }
    }
}

int64_t stk_batch_find_due(batch_driver *d, int64_t now_ms)
{
    int64_t wait = -1;
    if (d->lists != NULL && stk_batch_errand_is_over(d->lists)) {
        lists_known(d);
    }
    for (batch_queue *queue = d->queues; queue != NULL; queue = queue->next) {
        if (queue->n_listings == 0) {
            list_due(queue, now_ms);
        }
    }
    for (const batch_find *find = d->finds; find != NULL; find = find->next) {
        bool gathers = find->queue->n_listings > 0; /* the answer comes first */
        if (!find->is_known && find->due_ms > 0 && !gathers) {
            wait = stk_batch_sooner(wait, MAX(find->due_ms - now_ms, 0));
        }
    }
    return wait;
}

void stk_batch_finds_free(batch_driver *d)
{
    stk_batch_errand_drop(d->lists);
    for (batch_listing *l = d->listings, *next; l != NULL; l = next) {
        next = l->next;
        free(l->finds);
        free(l);
    }
    stk_map_done(&d->children);
    stk_arena_free(d->lists_arena);
}
