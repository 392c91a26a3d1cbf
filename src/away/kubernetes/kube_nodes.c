/* kube_nodes: the models of devices that the nodes' labels tell of. A job that names a model asks
 * for nodes by all spellings of it that are known (kube_models); before it is sent, the spellings
 * that this cluster's nodes have are added. Without the right to list nodes the known ones must do.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "away/kubernetes/kube_driver.h"
#include "away/kubernetes/kube_models.h"
#include "base/text.h"

enum { AGAIN_MS = 250, FRESH_MS = 60000, LABELS_MAX = 20000 };
#define WAY "/api/v1/nodes?limit=500"
#define LABELS_ONLY "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

/* --- reading --- */

static int add_model(stk_kube_nodes *n, const char *label, const char *value, stk_err *err)
{
    for (uint32_t i = 0; i < n->n; i++) {
        if (strcmp(n->models[i].label, label) == 0 && strcmp(n->models[i].value, value) == 0) {
            n->models[i].n_nodes++;
            return 0;
        }
    }
    if (n->n == LABELS_MAX) {
        return 0;
    }
    stk_kube_model *grown = stk_arena_grow(n->arena, n->models, n->n, sizeof *grown, &n->cap);
    STK_TRY(stk_err_if_null(grown, err));
    n->models = grown;
    stk_kube_model one = {stk_arena_dup(n->arena, label), stk_arena_dup(n->arena, value), 1};
    STK_TRY(stk_err_if_null(one.label, err));
    STK_TRY(stk_err_if_null(one.value, err));
    grown[n->n++] = one;
    return 0;
}

int stk_kube_read_nodes(stk_kube_nodes *n, const stk_json *items, stk_err *err)
{
    if (n->arena == NULL) {
        n->arena = stk_arena_new(0);
    }
    STK_TRY(stk_err_if_null(n->arena, err));
    for (uint32_t i = 0; i < stk_json_n_items(items); i++) {
        const stk_json *labels = stk_kube_at(&items->items[i], "metadata/labels");
        for (uint32_t k = 0; k < stk_json_n_members(labels); k++) {
            const char *label = stk_json_key(labels, k)->text;
            const char *value = stk_json_text(stk_json_value(labels, k));
            if (value != NULL && stk_kube_tells_models(NULL, label)) {
                STK_TRY(add_model(n, label, value, err));
            }
        }
    }
    return 0;
}

void stk_kube_nodes_free(stk_kube_nodes *n)
{
    stk_arena_free(n->arena);
    free(n->more);
    *n = (stk_kube_nodes){0};
}

/* --- asking --- */

static void on_nodes(void *arg, const stk_kube_answer *a)
{
    stk_kube *k = arg;
    stk_kube_nodes *n = &k->nodes;
    n->state = KUBE_NODES_UNKNOWN;
    if (stk_kube_passes(k, a, AGAIN_MS, &n->not_before_ms)) {
        return;
    }
    bool is_read = a->good && a->json != NULL &&
                   stk_kube_read_nodes(n, stk_json_get(a->json, "items"), NULL) == 0;
    const char *more = stk_kube_text_at(a->json, "metadata/continue");
    free(n->more);
    n->more = NULL;
    if (is_read && *more != '\0') {
        n->more = strdup(more);
        n->state = n->more == NULL ? KUBE_NODES_SECRET : KUBE_NODES_UNKNOWN;
        return;
    }
    n->state = is_read ? KUBE_NODES_KNOWN : KUBE_NODES_SECRET;
    n->until_ms = stk_kube_now() + FRESH_MS;
}

static bool knows_nodes(stk_kube *k, int64_t now)
{
    stk_kube_nodes *n = &k->nodes;
    if (n->state == KUBE_NODES_KNOWN && now > n->until_ms) { /* nodes come and go */
        stk_kube_nodes_free(n);
    }
    if (n->state == KUBE_NODES_UNKNOWN && stk_kube_may_begin(k, n->not_before_ms, now)) {
        uint64_t id;
        stk_arena_reset(k->scratch);
        const char *way = WAY;
        if (n->more != NULL) {
            const char *more = stk_kube_quote(n->more, k->scratch);
            way = more == NULL ? NULL : stk_arena_printf(k->scratch, WAY "&continue=%s", more);
        }
        const stk_kube_request request = {
            .method = "GET", .way = way, .accept = LABELS_ONLY, .done = on_nodes, .arg = k};
        if (way != NULL && stk_kube_begin(k, &request, &id)) {
            n->state = KUBE_NODES_ASKED;
        }
    }
    return n->state == KUBE_NODES_KNOWN || n->state == KUBE_NODES_SECRET;
}

/* --- the job's choice --- */

const char *stk_kube_classes(const stk_remote_job *job, const stk_json *options, stk_arena *arena)
{
    stk_alternative wants[STK_LIMIT_ASKS];
    const char *all = NULL;
    bool is_literal = stk_kube_text(options, "gpu_type") != NULL ||
                      stk_kube_text(options, "gpu_type_label") != NULL;
    uint32_t n = 0;
    if (job->resources != NULL && !is_literal && !stk_spec_asks_none(job->resources)) {
        n = stk_spec_alternatives(job->resources, wants);
    }
    for (uint32_t i = 0; i < n; i++) {
        const char *class = wants[i].gpu_class;
        if (class != NULL) {
            all = all == NULL ? stk_arena_dup(arena, class)
                              : stk_arena_printf(arena, "%s\n%s", all, class);
        }
    }
    return all;
}

typedef struct fitter {
    stk_kube_task *t;
    bool chooses; /* the documents choose nodes by such a label */
    bool fits;    /* some node is chosen */
    const char *label;
} fitter;

static bool has_value(const stk_json *values, const char *value)
{
    for (uint32_t i = 0; i < stk_json_n_items(values); i++) {
        if (stk_json_is(&values->items[i], value)) {
            return true;
        }
    }
    return false;
}

/* Is the value one of the models that the job asks for? */
static bool is_asked(const stk_kube_task *t, const char *label, const char *value)
{
    for (const char *line = t->classes; *line != '\0';) {
        char class[128];
        size_t n = strcspn(line, "\n");
        (void)snprintf(class, sizeof class, "%.*s", (int)n, line);
        if (stk_kube_model_fits(class, label, value)) {
            return true;
        }
        line += n + (line[n] == '\n');
    }
    return false;
}

static void fit_expression(fitter *f, const stk_json *one)
{
    const char *label = stk_json_get_text(one, "key");
    stk_json *values = (stk_json *)(uintptr_t)stk_json_get(one, "values");
    const stk_kube_nodes *n = &f->t->kube->nodes;
    if (label == NULL || !stk_kube_tells_models(NULL, label) ||
        !stk_json_is(stk_json_get(one, "operator"), "In") || !stk_json_is_list(values)) {
        return;
    }
    f->chooses = true;
    f->label = stk_text_or(f->label, label);
    for (uint32_t i = 0; i < n->n; i++) {
        const stk_kube_model *model = &n->models[i];
        if (strcmp(model->label, label) != 0) {
            continue;
        }
        if (has_value(values, model->value)) {
            f->fits = true;
        } else if (is_asked(f->t, label, model->value)) {
            const char *own = stk_arena_dup(f->t->arena, model->value);
            f->fits =
                own != NULL && stk_json_append(f->t->arena, values, stk_json_of_text(own)) != NULL;
        }
    }
}

static void fit_selector(fitter *f, const stk_json *selector)
{
    const stk_kube_nodes *n = &f->t->kube->nodes;
    for (uint32_t i = 0; i < stk_json_n_members(selector); i++) {
        const char *label = stk_json_key(selector, i)->text;
        if (!stk_kube_tells_models(NULL, label)) {
            continue;
        }
        f->chooses = true;
        f->label = stk_text_or(f->label, label);
        for (uint32_t k = 0; k < n->n; k++) {
            f->fits = f->fits || (strcmp(n->models[k].label, label) == 0 &&
                                  stk_json_is(stk_json_value(selector, i), n->models[k].value));
        }
    }
}

/* Finds the choices of nodes in a document: a Job's and a JobSet's lie at different depths. */
static void fit_tree(fitter *f, const stk_json *node)
{
    for (uint32_t i = 0; i < stk_json_n_items(node); i++) {
        fit_tree(f, &node->items[i]);
    }
    for (uint32_t i = 0; i < stk_json_n_members(node); i++) {
        const char *key = stk_json_key(node, i)->text;
        const stk_json *value = stk_json_value(node, i);
        if (strcmp(key, "matchExpressions") == 0) {
            for (uint32_t k = 0; k < stk_json_n_items(value); k++) {
                fit_expression(f, &value->items[k]);
            }
        } else if (strcmp(key, "nodeSelector") == 0) {
            fit_selector(f, value);
        } else {
            fit_tree(f, value);
        }
    }
}

/* "nvidia.com/gpu.product is NVIDIA-L4, Tesla-T4", for each label that tells this vendor's apart.
 */
static void say_misfit(stk_kube_task *t, const char *label)
{
    const stk_kube_nodes *all = &t->kube->nodes;
    const char *last = "";
    char found[300] = "", classes[80];
    size_t n = 0;
    for (uint32_t k = 0; k < 2; k++) { /* the devices' own labels, then instance types */
        for (uint32_t i = 0; i < all->n && n < sizeof found; i++) {
            const stk_kube_model *one = &all->models[i];
            bool is_type = strstr(one->label, "instance-type") != NULL;
            char names[64];
            if (is_type != (k == 1) ||
                (is_type &&
                 *stk_kube_model_names(one->label, one->value, names, sizeof names) == '\0')) {
                continue;
            }
            if (strcmp(last, one->label) == 0) {
                n += (size_t)snprintf(found + n, sizeof found - n, ", %s", one->value);
            } else {
                n += (size_t)snprintf(found + n, sizeof found - n, "%s%s is %s",
                                      stk_text_when(n != 0, "; "), one->label, one->value);
            }
            last = one->label;
        }
    }
    (void)snprintf(classes, sizeof classes, "%s", t->classes);
    for (char *c = classes; (c = strchr(c, '\n')) != NULL;) {
        *c = '|';
    }
    if (n == 0) {
        (void)snprintf(
            t->misfit, sizeof t->misfit,
            "no node has a label that tells its model (%s), for gpu_class '%s'; install "
            "the vendor's feature discovery, or set gpu_type_label to a label of your nodes",
            label, classes);
    } else {
        (void)snprintf(t->misfit, sizeof t->misfit,
                       "no node has gpu_class '%s': of the nodes %s; name one of these, or set "
                       "gpu_type_label to another label",
                       classes, found);
    }
}

bool stk_kube_fit_nodes(stk_kube_task *t, int64_t now)
{
    if (t->fitted || t->classes == NULL || t->arena == NULL) {
        return true;
    }
    if (!knows_nodes(t->kube, now)) {
        return false;
    }
    fitter f = {.t = t};
    for (uint32_t i = 0; i < t->n_ways && t->kube->nodes.state == KUBE_NODES_KNOWN; i++) {
        fit_tree(&f, stk_json_item(&t->ways[i].docs, 0));
    }
    if (f.chooses && !f.fits) {
        say_misfit(t, f.label);
    }
    t->fitted = true;
    return true;
}
