/* kube_models: models of devices as the labels of nodes spell them. */
#include "away/kubernetes/kube_models.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"

typedef enum { PRODUCT, AMD, INTEL, GOOGLE, EC2 } spelling;

static const struct label_row {
    const char *vendor, *label;
    spelling spelling;
} label_rows[] = {
#define X(vendor, label, spelling) {vendor, label, spelling},
#include "tbl/node_labels.def"
};

static const struct {
    const char *word, *class;
} gke_words[] = {
#define GKE(word, class) {word, class},
#include "tbl/node_labels.def"
};

static const struct {
    const char *family, *vendor, *class, *sizes;
} ec2_families[] = {
#define X(family, vendor, model, sizes) {family, vendor, model, sizes},
#include "tbl/ec2_instances.def"
#undef X
};

static const struct model_row {
    const char *vendor, *name, *model;
    int64_t memory_bytes;
} model_rows[] = {
#define MODEL(vendor, name, model, memory_mib, cc, links, shape, cores)                            \
    {vendor, name, model, (int64_t)(memory_mib) << 20},
#include "tbl/models.def"
};

enum { N_LABELS = sizeof label_rows / sizeof *label_rows };
enum { N_MODELS = sizeof model_rows / sizeof *model_rows };

static bool fits_row(const char *gpu_class, const struct model_row *row)
{
    const stk_spec_device d = {.vendor = row->vendor,
                               .noun = "GPU",
                               .model = row->model,
                               .memory_bytes = row->memory_bytes};
    return stk_spec_device_fits(gpu_class, NULL, &d);
}

/* The row of a short name; NULL: none. */
static const struct model_row *row_of_name(const char *name)
{
    for (size_t i = 0; i < N_MODELS; i++) {
        if (strcasecmp(model_rows[i].name, name) == 0) {
            return &model_rows[i];
        }
    }
    return NULL;
}

/* --- from a class to values --- */

/* A model in a label's spelling: without the words that it leaves out, and with its separator. */
static const char *spell(const struct model_row *row, spelling how, stk_arena *arena)
{
    static const char *const prefixes[] = {
        [PRODUCT] = "NVIDIA Tesla ", [AMD] = "", [INTEL] = "Intel Data Center GPU "};
    static const char separators[] = {[PRODUCT] = '-', [AMD] = '_', [INTEL] = '_'};
    const char *model = row->model;
    size_t n = strlen(prefixes[how]);
    if (how == PRODUCT && strncmp(model, prefixes[how], n) == 0) {
        model += strlen("NVIDIA "); /* the driver says "Tesla T4" */
    } else if (how == INTEL && strncmp(model, prefixes[how], n) == 0) {
        model += n;
    } else if (how == INTEL && strncmp(model, "Intel ", 6) == 0) {
        model += 6;
    }
    char *text = stk_arena_dup(arena, model);
    for (char *c = text; c != NULL && *c != '\0'; c++) {
        *c = *c == ' ' ? separators[how] : *c;
    }
    return text;
}

bool stk_kube_match_add(stk_kube_wanted *to, const char *label, const char *value)
{
    uint32_t at = 0;
    while (at < to->n_matches && strcmp(to->matches[at].label, label) != 0) {
        at++;
    }
    if (at == STK_KUBE_MATCHES || value == NULL) {
        return false;
    }
    stk_kube_match *match = &to->matches[at];
    if (at == to->n_matches) {
        *match = (stk_kube_match){.label = label};
        to->n_matches++;
    }
    for (uint32_t i = 0; i < match->n; i++) {
        if (strcmp(match->values[i], value) == 0) {
            return true;
        }
    }
    if (match->n == STK_KUBE_VALUES) {
        return false;
    }
    match->values[match->n++] = value;
    return true;
}

static bool add_instances(const char *gpu_class, const struct label_row *label, stk_arena *arena,
                          stk_kube_wanted *to)
{
    bool any = false;
    for (size_t i = 0; i < sizeof ec2_families / sizeof *ec2_families; i++) {
        const struct model_row *row = row_of_name(ec2_families[i].class);
        const char *size = ec2_families[i].sizes;
        if (strcmp(ec2_families[i].vendor, label->vendor) != 0 || row == NULL ||
            !fits_row(gpu_class, row)) {
            continue;
        }
        while (*size != '\0') {
            size_t n = strcspn(size, " ");
            const char *type =
                stk_arena_printf(arena, "%s.%.*s", ec2_families[i].family, (int)n, size);
            any = stk_kube_match_add(to, label->label, type) || any;
            size += n + strspn(size + n, " ");
        }
    }
    return any;
}

static bool add_models(const char *gpu_class, const struct label_row *label, stk_arena *arena,
                       stk_kube_wanted *to)
{
    bool any = false;
    for (size_t i = 0; i < N_MODELS && label->spelling <= INTEL; i++) {
        const struct model_row *row = &model_rows[i];
        if (strcmp(row->vendor, label->vendor) != 0 || !fits_row(gpu_class, row)) {
            continue;
        }
        const char *value = spell(row, label->spelling, arena);
        any = stk_kube_match_add(to, label->label, value) || any;
        if (value != NULL && label->spelling == AMD) { /* a card's form is part of its name */
            (void)stk_kube_match_add(to, label->label, stk_arena_printf(arena, "%s_OAM", value));
        }
    }
    for (size_t i = 0; i < sizeof gke_words / sizeof *gke_words && label->spelling == GOOGLE; i++) {
        const struct model_row *row = row_of_name(gke_words[i].class);
        if (row != NULL && fits_row(gpu_class, row)) {
            any = stk_kube_match_add(to, label->label, gke_words[i].word) || any;
        }
    }
    if (label->spelling == EC2) {
        any = add_instances(gpu_class, label, arena, to);
    }
    return any;
}

/* The label whose value the class is already; NULL: none. */
static const char *label_of_value(const stk_kube_wanted *all, const char *gpu_class)
{
    for (uint32_t i = 0; i < all->n_matches; i++) {
        for (uint32_t k = 0; k < all->matches[i].n; k++) {
            if (strcmp(all->matches[i].values[k], gpu_class) == 0) {
                return all->matches[i].label;
            }
        }
    }
    return NULL;
}

bool stk_kube_model_add(const char *gpu_class, const char *vendor, stk_arena *arena,
                        stk_kube_wanted *to)
{
    stk_kube_wanted all = {0};
    bool any = false;
    for (size_t i = 0; i < N_LABELS; i++) {
        if (strcmp(label_rows[i].vendor, vendor) == 0) {
            any = add_models(gpu_class, &label_rows[i], arena, &all) || any;
        }
    }
    const char *label = label_of_value(&all, gpu_class);
    if (label != NULL) {
        return stk_kube_match_add(to, label, gpu_class);
    }
    for (uint32_t i = 0; i < all.n_matches; i++) {
        for (uint32_t k = 0; k < all.matches[i].n; k++) {
            (void)stk_kube_match_add(to, all.matches[i].label, all.matches[i].values[k]);
        }
    }
    return any;
}

/* --- from a value to a class --- */

static bool is_same_name(const char *a, const char *b)
{
    for (;;) {
        while (*a != '\0' && !isalnum((unsigned char)*a)) {
            a++;
        }
        while (*b != '\0' && !isalnum((unsigned char)*b)) {
            b++;
        }
        if (*a == '\0' || tolower((unsigned char)*a) != tolower((unsigned char)*b)) {
            return *a == *b;
        }
        a++;
        b++;
    }
}

static bool ends_in(const char *text, const char *end)
{
    size_t n = strlen(text), k = strlen(end);
    return n >= k && strcasecmp(text + n - k, end) == 0;
}

/* The row that a value means; NULL: none is known by it. */
static const struct model_row *row_of_value(const struct label_row *label, const char *value)
{
    size_t n = strcspn(value, ".");
    const char *name = NULL;
    for (size_t i = 0; i < N_MODELS && label->spelling <= INTEL; i++) {
        const char *model = model_rows[i].model;
        const char *bare = model + strcspn(model, " ");
        if (strcmp(model_rows[i].vendor, label->vendor) == 0 &&
            (is_same_name(model, value) || is_same_name(bare, value))) {
            return &model_rows[i];
        }
    }
    for (size_t i = 0; i < sizeof gke_words / sizeof *gke_words && label->spelling == GOOGLE; i++) {
        if (strcmp(gke_words[i].word, value) == 0) {
            name = gke_words[i].class;
        }
    }
    for (size_t i = 0; i < sizeof ec2_families / sizeof *ec2_families && label->spelling == EC2;
         i++) {
        if (strncmp(ec2_families[i].family, value, n) == 0 && ec2_families[i].family[n] == '\0' &&
            strcmp(ec2_families[i].vendor, label->vendor) == 0) {
            name = ec2_families[i].class;
        }
    }
    if (name == NULL) {
        return NULL;
    }
    return row_of_name(name);
}

static bool fits_label(const char *gpu_class, const struct label_row *label, const char *value)
{
    const struct model_row *row = row_of_value(label, value);
    if (row != NULL || label->spelling == EC2) {
        return row != NULL && fits_row(gpu_class, row);
    }
    if ((ends_in(value, "-SHARED") || stk_spec_is_slice(value)) &&
        strcasecmp(value, gpu_class) != 0) {
        return false;
    }
    const stk_spec_device d = {
        .vendor = label->vendor, .noun = "GPU", .model = value, .memory_bytes = -1};
    return stk_spec_device_fits(gpu_class, NULL, &d);
}

bool stk_kube_model_fits(const char *gpu_class, const char *label, const char *value)
{
    for (size_t i = 0; i < N_LABELS; i++) {
        if (strcmp(label_rows[i].label, label) == 0 &&
            fits_label(gpu_class, &label_rows[i], value)) {
            return true;
        }
    }
    return false;
}

bool stk_kube_tells_models(const char *vendor, const char *label)
{
    for (size_t i = 0; i < N_LABELS; i++) {
        if (strcmp(label_rows[i].label, label) == 0 &&
            (vendor == NULL || strcmp(label_rows[i].vendor, vendor) == 0)) {
            return true;
        }
    }
    return false;
}

const char *stk_kube_model_names(const char *label, const char *value, char *buf, size_t size)
{
    size_t n = 0;
    buf[0] = '\0';
    for (size_t i = 0; i < N_MODELS && n < size; i++) {
        const char *name = model_rows[i].name;
        if (stk_kube_tells_models(model_rows[i].vendor, label) &&
            stk_kube_model_fits(name, label, value)) {
            n += (size_t)snprintf(buf + n, size - n, "%s%s", stk_text_when(n != 0, ", "), name);
        }
    }
    return buf;
}

const char *stk_kube_model_labels(const char *vendor, char *buf, size_t size)
{
    size_t n = 0;
    buf[0] = '\0';
    for (size_t i = 0; i < N_LABELS && n < size; i++) {
        if (strcmp(label_rows[i].vendor, vendor) == 0) {
            n += (size_t)snprintf(buf + n, size - n, "%s%s", stk_text_when(n != 0, ", "),
                                  label_rows[i].label);
        }
    }
    return buf;
}
