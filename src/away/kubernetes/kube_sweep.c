/* kube_sweep: at a run's end, removes Jobs in its namespaces whose attempts are on record as ended,
 * of this run or an earlier one: an engine may die between the record and the removal. It needs one
 * list of metadata for each namespace. Jobs that aren't ours, or that the user keeps, stay. */
#include <stdlib.h>
#include <string.h>

#include "away/kubernetes/kube_driver.h"

enum { LIST_MAX = 1000, SWEEP_MS = 5000, TURN_MS = 100 };

typedef struct sweep {
    stk_kube_space *space;
    uint32_t n_open; /* requests under way */
    bool again;      /* a temporary failure: repeat the whole sweep */
} sweep;

static void on_swept(void *arg, const stk_kube_answer *a)
{
    sweep *s = arg;
    s->again = s->again || a->again; /* else done, or left to its TTL */
    s->n_open--;
}

static void ask(sweep *s, const char *method, const char *way, const char *body, const char *accept,
                void (*done)(void *, const stk_kube_answer *))
{
    uint64_t id;
    const stk_kube_request request = {
        .method = method, .way = way, .body = body, .accept = accept, .done = done, .arg = s};
    stk_kube *k = s->space->kube;
    if (way != NULL && stk_kube_may_begin(k, 0, stk_kube_now()) &&
        stk_kube_begin(k, &request, &id)) {
        s->n_open++;
    } else {
        s->again = true;
    }
}

/* If the Job with these metadata is on record as ended, removes it, or the JobSet that owns it. */
static void look_at(sweep *s, const stk_json *meta)
{
    stk_kube *k = s->space->kube;
    const stk_json *labels = stk_kube_at(meta, "labels");
    const stk_json *notes = stk_kube_at(meta, "annotations");
    const stk_json *owners = stk_kube_at(meta, "ownerReferences");
    const char *run = stk_kube_text_at(notes, STK_KUBE_LABEL_RUN);
    const char *name = stk_kube_text_at(meta, "name");
    const char *id = stk_kube_text_at(notes, STK_KUBE_NOTE_ID);
    const char *attempt = stk_kube_text_at(labels, STK_KUBE_LABEL_ATTEMPT);
    const char *group = KUBE_BATCH, *plural = "jobs";
    if (*run == '\0') {
        run = stk_kube_text_at(labels, STK_KUBE_LABEL_RUN);
    }
    if (*run == '\0' || *id == '\0' || *stk_kube_text_at(meta, "deletionTimestamp") != '\0' ||
        !k->config->is_recorded(k->config->recorded_arg, run, (uint32_t)strtoul(id, NULL, 10),
                                (uint32_t)strtoul(attempt, NULL, 10))) {
        return;
    }
    if (stk_json_n_items(owners) > 0) {
        if (strcmp(stk_kube_text_at(&owners->items[0], "kind"), "JobSet") != 0) {
            return;
        }
        group = KUBE_JOBSET;
        plural = "jobsets";
        name = stk_kube_text_at(&owners->items[0], "name");
    }
    STK_BUF_AUTO body = STK_BUF_INIT(1024);
    stk_kube_put_delete(&body, "Background");
    stk_arena_reset(k->scratch);
    const char *way =
        stk_arena_printf(k->scratch, "%s/namespaces/%s/%s/%s", group, s->space->name, plural, name);
    if (body.failed) {
        way = NULL;
    }
    ask(s, "DELETE", way, body.data, NULL, on_swept);
}

static void on_listed(void *arg, const stk_kube_answer *a)
{
    sweep *s = arg;
    s->n_open--;
    s->again = s->again || a->again;
    const stk_json *items = stk_kube_at(a->json, "items");
    for (uint32_t i = 0; i < stk_json_n_items(items); i++) {
        const stk_json *meta = stk_kube_at(&items->items[i], "metadata");
        const char *name = stk_kube_text_at(stk_kube_at(meta, "labels"), STK_KUBE_LABEL_JOB);
        if (meta != NULL && stk_kube_find(s->space->kube, name) == NULL) {
            look_at(s, meta);
        }
    }
}

static void ask_for_jobs(sweep *s)
{
    stk_arena *arena = s->space->kube->scratch;
    stk_arena_reset(arena);
    s->again = false;
    ask(s, "GET",
        stk_arena_printf(arena,
                         KUBE_BATCH "/namespaces/%s/jobs?labelSelector=" STK_KUBE_SELECT_OURS
                                    "%%2C%%21" STK_KUBE_LABEL_KEEP "&limit=%d",
                         s->space->name, LIST_MAX),
        NULL, "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", on_listed);
}

void stk_kube_sweep(stk_kube *k)
{
    int64_t until = stk_kube_now() + SWEEP_MS;
    for (stk_kube_space *space = k->spaces; space != NULL && k->config->is_recorded != NULL;
         space = space->next) {
        sweep s = {.space = space, .again = true};
        int rc = 0;
        while ((s.again || s.n_open > 0) && rc == 0 && stk_kube_now() < until &&
               k->fatal.code == 0) {
            if (s.n_open == 0) {
                ask_for_jobs(&s);
            }
            rc = stk_http_many_turn(k->api.many, -1, TURN_MS, NULL);
        }
        stk_kube_stop_all(&k->api, &s);
    }
}
