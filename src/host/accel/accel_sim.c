/* A simulated machine for planning, simulation and tests: sim:SPEC, or --simulate SPEC.
 *
 *     SPEC    PART[+PART…]
 *     PART    [COUNTx]MODEL[,OPTION…]      8xH100    A100-40GB    4xMI300X    16xTrainium
 *             TPU-SLICE[,OPTION…]          v5e-8 (chips)    v4-8 (cores, as Google counts: 4 chips)
 *     OPTION  mig=PROFILE[*N]              each device split into N, or as many as fit;
 *                                          may be repeated
 *             memory=SIZE   busy=PERCENT   of each device
 *
 * The models are those of tbl/models.def. A part is one board: its devices are linked as in the
 * catalogue and, if there are five or more, spread over two NUMA nodes. All other properties are
 * unknown. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/param.h>

#include "base/text.h"
#include "base/units.h"
#include "host/accel/accel_priv.h"

typedef struct model {
    const char *vendor, *name, *shown;
    int32_t memory_mib, cc, links;
    int32_t columns; /* of the devices' grid; 0: every device is linked to every other */
    int32_t n_cores;
} model;

#define ALL 0
#define GRID(columns) columns
static const model models[] = {
#define MODEL(vendor, name, shown, memory_mib, cc, links, shape, cores)                            \
    {vendor, name, shown, memory_mib, cc, links, shape, cores},
#include "tbl/models.def"
};
#undef ALL
#undef GRID
enum { N_MODELS = sizeof models / sizeof models[0] };

static const struct slice {
    const char *shown, *profile;
    int32_t max;
} slices[] = {
#define SLICE(shown, profile, max) {shown, profile, max},
#include "tbl/models.def"
};
enum { N_SLICES = sizeof slices / sizeof slices[0], CUTS_MAX = 8, WORD_MAX = 80 };

/* An open simulated device. */
typedef struct sim_device {
    const model *model;
    uint32_t board, place, n_on_board;
    int32_t busy_percent;
} sim_device;

typedef struct sim {
    sim_device devices[STK_LIMIT_DEVICES];
    uint32_t n, n_boards;
} sim;

/* A parsed PART. */
typedef struct part {
    const model *model;
    uint32_t n;
    int64_t memory_bytes;
    int32_t busy_percent;
    struct {
        const struct slice *slice;
        int32_t n;
    } cuts[CUTS_MAX];
    uint32_t n_cuts;
} part;

static const model *find_model(const char *name, size_t len)
{
    for (size_t i = 0; i < N_MODELS; i++) {
        const model *m = &models[i];
        if ((strlen(m->name) == len && strncasecmp(m->name, name, len) == 0) ||
            (strlen(m->shown) == len && strncasecmp(m->shown, name, len) == 0)) {
            return m;
        }
    }
    return NULL;
}

static int unknown_model(const char *name, stk_err *err)
{
    char word[WORD_MAX], lower[N_MODELS][WORD_MAX];
    const char *candidates[N_MODELS];
    if (name[0] == '\0') {
        return stk_err_set(err, STK_E_USAGE,
                           "simulated machine: a part is empty; parts are COUNTxMODEL, joined by "
                           "'+', as in 8xH100+2xT4");
    }
    for (size_t i = 0; i < N_MODELS; i++) {
        size_t k = 0;
        for (; models[i].name[k] != '\0' && k + 1 < WORD_MAX; k++) {
            lower[i][k] = (char)tolower((unsigned char)models[i].name[k]);
        }
        lower[i][k] = '\0';
        candidates[i] = lower[i];
    }
    (void)snprintf(word, sizeof word, "%s", name);
    for (char *c = word; *c != '\0'; c++) {
        *c = (char)tolower((unsigned char)*c);
    }
    const char *nearest = stk_units_nearest(word, candidates, N_MODELS);
    if (nearest == NULL) {
        stk_err_set(err, STK_E_USAGE, "simulated machine: no device '%s' is known", name);
        stk_err_hint(err,
                     "known are H100, H200, B200, A100, A100-40GB, L4, L40S, T4, V100, MI300X, "
                     "Max-1550, Trainium, Trainium2, Inferentia2, Gaudi2, v4, v5e, v5p, v6e …");
        return STK_E_USAGE;
    }
    size_t i = 0;
    while (candidates[i] != nearest) {
        i++;
    }
    return stk_err_set(err, STK_E_USAGE,
                       "simulated machine: no device '%s' is known; did you mean %s?", name,
                       models[i].name);
}

/* Since v5e Google names a slice by its chips, before by its TensorCores. */
static bool counts_chips(const model *m)
{
    return strcmp(m->shown, "Google TPU v5e") == 0 || strcmp(m->shown, "Google TPU v6e") == 0;
}

static int check_chips(const char *word, const part *p, stk_err *err)
{
    if (strcmp(p->model->vendor, "google") != 0) {
        return 0;
    }
    uint32_t n_host = counts_chips(p->model) ? 8 : 4;
    if (p->n > n_host) {
        return stk_err_set(err, STK_E_USAGE,
                           "simulated machine: '%s' is %u chips on several hosts; one host has "
                           "at most %u: %s-8",
                           word, p->n, n_host, p->model->name);
    }
    if (p->n != 1 && p->n != 2 && p->n != 4 && p->n != 8) {
        return stk_err_set(err, STK_E_USAGE,
                           "simulated machine: '%s' is %u chips; TPUs come in 1, 2, 4 or 8", word,
                           p->n);
    }
    return 0;
}

/* "8xH100", "H100", "v5e-8" */
static int parse_model(const char *word, part *p, stk_err *err)
{
    char *end;
    unsigned long n = 0;
    if (isdigit((unsigned char)*word)) {
        n = strtoul(word, &end, 10);
    }
    p->n = 1;
    const char *name = word;
    if (n > 0 && (*end == 'x' || *end == 'X')) {
        name = end + 1;
    } else {
        n = 1;
    }
    p->model = find_model(name, strlen(name));
    const char *dash = strrchr(name, '-');
    if (p->model == NULL && dash != NULL && name == word) {
        const model *tpu = find_model(name, (size_t)(dash - name));
        unsigned long n_named = strtoul(dash + 1, &end, 10);
        if (tpu != NULL && strcmp(tpu->vendor, "google") == 0 && isdigit((unsigned char)dash[1]) &&
            *end == '\0' && n_named > 0) {
            p->model = tpu;
            n = counts_chips(tpu) ? n_named : (n_named + 1) / 2;
        }
    }
    if (p->model == NULL && name == word && isdigit((unsigned char)*word) && n == 1 &&
        strtoul(word, &end, 10) == 0 && (*end == 'x' || *end == 'X')) {
        return stk_err_set(err, STK_E_USAGE,
                           "simulated machine: '%s' has no device; ask for at least 1", word);
    }
    if (p->model == NULL) {
        return unknown_model(name, err);
    }
    if (n > STK_LIMIT_DEVICES) {
        return stk_err_set(err, STK_E_LIMIT, "simulated machine: '%s' is more than %d devices",
                           word, STK_LIMIT_DEVICES);
    }
    p->n = (uint32_t)n;
    return check_chips(word, p, err);
}

static int32_t compute_slices(const char *profile)
{
    return (int32_t)strtol(profile, NULL, 10);
}

static int parse_cut(const char *value, part *p, stk_err *err)
{
    size_t len = strcspn(value, "*");
    int32_t most = 0, taken = 0;
    const struct slice *found = NULL;
    for (size_t i = 0; i < N_SLICES; i++) {
        if (strcmp(slices[i].shown, p->model->shown) == 0) {
            int32_t g = compute_slices(slices[i].profile);
            most = MAX(g, most);
            if (strlen(slices[i].profile) == len &&
                strncasecmp(slices[i].profile, value, len) == 0) {
                found = &slices[i];
            }
        }
    }
    if (found == NULL) {
        return stk_err_set(err, STK_E_USAGE, "simulated machine: %s %s '%.*s'", p->model->shown,
                           most > 0 ? "has no MIG profile" : "can't be split by MIG into", (int)len,
                           value);
    }
    for (uint32_t i = 0; i < p->n_cuts; i++) {
        taken += p->cuts[i].n * compute_slices(p->cuts[i].slice->profile);
    }
    int32_t each = compute_slices(found->profile);
    int32_t room = MIN((most - taken) / each, found->max);
    char *end = NULL;
    long n = room;
    if (value[len] == '*') {
        n = strtol(value + len + 1, &end, 10);
    }
    if (n < 1 || (end != NULL && (*end != '\0' || end == value + len + 1)) || n > room ||
        p->n_cuts == CUTS_MAX) {
        return stk_err_set(err, STK_E_USAGE,
                           "simulated machine: mig=%s: %s has room for %d of '%s'%s", value,
                           p->model->shown, (int)room, found->profile,
                           stk_text_when(p->n_cuts > 0, " beside the others"));
    }
    p->cuts[p->n_cuts].slice = found;
    p->cuts[p->n_cuts++].n = (int32_t)n;
    return 0;
}

static int parse_option(const char *word, part *p, stk_err *err)
{
    if (strncmp(word, "mig=", 4) == 0) {
        return parse_cut(word + 4, p, err);
    }
    if (strncmp(word, "memory=", 7) == 0) {
        if (stk_units_parse_memory(word + 7, &p->memory_bytes, NULL) < 0 || p->memory_bytes <= 0) {
            return stk_err_set(err, STK_E_USAGE,
                               "simulated machine: %s is not an amount like 80GB or 16 GiB", word);
        }
        return 0;
    }
    if (strncmp(word, "busy=", 5) == 0) {
        char *end;
        long percent = strtol(word + 5, &end, 10);
        if (end == word + 5 || (*end != '\0' && strcmp(end, "%") != 0) || percent < 0 ||
            percent > 100) {
            return stk_err_set(err, STK_E_USAGE, "simulated machine: %s is not 0 to 100 percent",
                               word);
        }
        p->busy_percent = (int32_t)percent;
        return 0;
    }
    return stk_err_set(
        err, STK_E_USAGE,
        "simulated machine: '%s' is none of mig=PROFILE*N, memory=SIZE, busy=PERCENT", word);
}

static int add_slices(stk_accel *accel, const part *p, const stk_device *whole, uint32_t slot,
                      stk_err *err)
{
    stk_device d = *whole;
    d.parent = (int32_t)accel->n - 1;
    d.n_slices = 0;
    d.noun = "MIG slice";
    d.usable = true;
    uint32_t k = 0;
    for (uint32_t c = 0; c < p->n_cuts; c++) {
        const char *profile = p->cuts[c].slice->profile;
        d.profile = profile;
        d.memory_bytes = strtoll(strchr(profile, '.') + 1, NULL, 10) * 1000000000;
        for (int32_t i = 0; i < p->cuts[c].n; i++) {
            d.uuid = stk_arena_printf(accel->arena, "MIG-sim-%d-%u", (int)d.index, k++);
            STK_TRY(stk_accel_add(accel, &d, slot, err));
        }
    }
    return 0;
}

static const char *noun_of(const char *vendor)
{
    static const char *const nouns[][2] = {
        {"aws", "Neuron device"}, {"google", "TPU chip"}, {"habana", "Gaudi card"}};
    for (size_t i = 0; i < sizeof nouns / sizeof nouns[0]; i++) {
        if (strcmp(vendor, nouns[i][0]) == 0) {
            return nouns[i][1];
        }
    }
    return "GPU";
}

static int add_device(stk_accel *accel, sim *s, const part *p, uint32_t place, stk_err *err)
{
    const model *m = p->model;
    int32_t index = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        index += strcmp(s->devices[i].model->vendor, m->vendor) == 0;
    }
    stk_device d = {STK_DEVICE_UNKNOWN, .vendor = m->vendor, .model = m->shown, .usable = true};
    d.noun = noun_of(m->vendor);
    d.index = index;
    d.uuid = stk_arena_printf(accel->arena, "%s-sim-%d",
                              strcmp(d.noun, "GPU") == 0 ? d.noun : m->vendor, (int)index);
    d.numa = p->n > 4 && place >= p->n / 2;
    d.n_cores = m->n_cores;
    d.memory_bytes = (int64_t)m->memory_mib << 20;
    if (p->memory_bytes > 0) {
        d.memory_bytes = p->memory_bytes;
    }
    if (m->cc > 0) {
        d.cc_major = m->cc / 10;
        d.cc_minor = m->cc % 10;
    }
    for (uint32_t c = 0; c < p->n_cuts; c++) {
        d.n_slices += p->cuts[c].n;
        d.usable = false;
    }
    STK_TRY(stk_accel_add(accel, &d, s->n, err));
    s->devices[s->n++] = (sim_device){m, s->n_boards, place, p->n, p->busy_percent};
    return add_slices(accel, p, &d, s->n - 1, err);
}

static int add_part(stk_accel *accel, sim *s, char *text, stk_err *err)
{
    part p = {.memory_bytes = -1, .busy_percent = -1};
    char *rest = text;
    for (char *word; (word = strsep(&rest, ",")) != NULL;) {
        if (strlen(word) >= WORD_MAX) {
            return stk_err_set(err, STK_E_USAGE, "simulated machine: '%.40s…' is too long", word);
        }
        if (p.model == NULL) {
            STK_TRY(parse_model(word, &p, err));
        } else {
            STK_TRY(parse_option(word, &p, err));
        }
    }
    if (p.n_cuts > 0 && p.memory_bytes > 0) {
        return stk_err_set(err, STK_E_USAGE,
                           "simulated machine: memory= and mig= exclude each other: a slice's "
                           "memory is in its profile's name");
    }
    for (uint32_t i = 0; i < p.n; i++) {
        STK_TRY(add_device(accel, s, &p, i, err));
    }
    s->n_boards++;
    return 0;
}

static int sim_open(stk_accel *accel, const char *spec, void **ret_self, stk_err *err)
{
    sim *s = stk_arena_alloc(accel->arena, sizeof *s);
    char *rest = stk_arena_dup(accel->arena, spec);
    STK_TRY(stk_err_need(s, "for the simulated machine", err));
    STK_TRY(stk_err_need(rest, "for the simulated machine", err));
    if (*spec == '\0') {
        return stk_err_set(err, STK_E_USAGE,
                           "simulated machine: name one, for example 8xH100, 2xA100,mig=1g.10gb*7, "
                           "4xMI300X, 16xTrainium or v5e-8");
    }
    for (char *text; (text = strsep(&rest, "+")) != NULL;) {
        STK_TRY(add_part(accel, s, text, err));
    }
    *ret_self = s;
    return 0;
}

static int sim_state(void *self, uint32_t slot, stk_device_state *ret, stk_err *err)
{
    const sim *s = self;
    (void)err;
    ret->busy_percent = s->devices[slot].busy_percent;
    return 0;
}

static int sim_sample(void *self, uint32_t slot, const pid_t *pids, uint32_t n_pids,
                      stk_device_sample *ret)
{
    const sim *s = self;
    (void)pids, (void)n_pids;
    ret->busy_percent = s->devices[slot].busy_percent;
    return 0;
}

/* The number of steps between two places of a ring of n. */
static uint32_t ring_distance(uint32_t a, uint32_t b, uint32_t n)
{
    uint32_t d = MAX(a, b) - MIN(a, b);
    return n > 2 ? MIN(n - d, d) : d;
}

static stk_closeness sim_link(void *self, uint32_t slot, uint32_t other, int32_t *ret_n)
{
    const sim *s = self;
    const sim_device *a = &s->devices[slot], *b = &s->devices[other];
    if (a->board != b->board || a->model->links == 0) {
        return STK_LINK_UNKNOWN; /* the caller then compares NUMA nodes */
    }
    uint32_t columns = (uint32_t)a->model->columns;
    if (columns > 0) {
        uint32_t rows = (a->n_on_board + columns - 1) / columns;
        uint32_t distance = ring_distance(a->place % columns, b->place % columns, columns) +
                            ring_distance(a->place / columns, b->place / columns, rows);
        if (distance > 1) {
            return STK_LINK_SWITCH; /* on one board, but only through other devices */
        }
    }
    *ret_n = a->model->links;
    return STK_LINK_FABRIC;
}

const stk_provider stk_provider_sim = {
    .name = "sim",
    .adjective = "simulated",
    .takes_spec = true,
    .simulated = true,
    .open = sim_open,
    .ops = {.state = sim_state, .sample = sim_sample, .link = sim_link},
};
