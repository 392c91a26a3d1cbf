/* Matches devices against gpu_class and gpu_vendor. People write "A100-80GB", vendors "NVIDIA
 * A100-SXM4-80GB", clouds "NVIDIA_TESLA_A100", so this compares words instead of whole texts. */
#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "model/spec/spec.h"

typedef struct word {
    const char *at;
    size_t len;
} word;

/* The next run of letters and digits at or after *text. */
static bool next_word(const char **text, word *ret)
{
    const char *at = *text == NULL ? "" : *text;
    while (*at != '\0' && !isalnum((unsigned char)*at)) {
        at++;
    }
    ret->at = at;
    while (isalnum((unsigned char)*at)) {
        at++;
    }
    ret->len = (size_t)(at - ret->at);
    *text = at;
    return ret->len > 0;
}

static bool is_word(word w, const char *text)
{
    return strlen(text) == w.len && strncasecmp(w.at, text, w.len) == 0;
}

/* True if `w` is in the text, as one word or as adjacent words written together ("RTX4090"). */
static bool has_word(const char *text, word w)
{
    word start;
    while (next_word(&text, &start)) {
        const char *rest = start.at;
        word part;
        size_t n = 0;
        while (n < w.len && next_word(&rest, &part) && part.len <= w.len - n &&
               strncasecmp(part.at, w.at + n, part.len) == 0) {
            n += part.len;
        }
        if (n == w.len) {
            return true;
        }
    }
    return false;
}

/* Matches "80GB" against the memory of a device whose name doesn't include it. Makers count GB or
 * GiB, and reserve some. */
static bool is_its_memory(word w, int64_t memory_bytes)
{
    double gb = 0;
    size_t n = 0;
    for (; n < w.len && n < 4 && isdigit((unsigned char)w.at[n]); n++) {
        gb = gb * 10 + (w.at[n] - '0');
    }
    return n > 0 && w.len - n == 2 && strncasecmp(w.at + n, "gb", 2) == 0 &&
           (double)memory_bytes >= gb * 0.93e9 && (double)memory_bytes <= gb * (1 << 30) * 1.03;
}

/* True for brand words that may or may not stand before a model. */
static bool is_filler(word w)
{
    static const char *const fillers[] = {"tesla", "geforce", "instinct", "gpu"};
    for (size_t i = 0; i < sizeof fillers / sizeof *fillers; i++) {
        if (is_word(w, fillers[i])) {
            return true;
        }
    }
    return false;
}

/* Common names of models, and their makers' names. */
static const struct {
    const char *vendor, *name, *model;
    int64_t memory_mib;
} models[] = {
#define MODEL(vendor, name, model, memory_mib, cc, links, shape, cores)                            \
    {vendor, name, model, memory_mib},
#include "tbl/models.def"
#undef MODEL
    {"google", "tpu", NULL, -1},
    {"aws", "neuron", NULL, -1},
    {"habana", "gaudi", NULL, -1},
};

/* True if the name, separators aside, is in the text as whole words. */
static bool has_name(const char *text, const char *name)
{
    char joined[64];
    word all = {joined, 0};
    for (; *name != '\0' && all.len + 1 < sizeof joined; name++) {
        if (isalnum((unsigned char)*name)) {
            joined[all.len++] = *name;
        }
    }
    return has_word(text, all);
}

bool stk_spec_is_slice(const char *gpu_class)
{
    word w;
    while (next_word(&gpu_class, &w)) {
        size_t n = 0;
        while (n < w.len && isdigit((unsigned char)w.at[n])) {
            n++;
        }
        if (is_word(w, "mig") ||
            (n > 0 && n + 1 == w.len && tolower((unsigned char)w.at[n]) == 'g')) {
            return true;
        }
    }
    return false;
}

const char *stk_spec_vendor_of_class(const char *gpu_class)
{
    for (size_t i = 0; gpu_class != NULL && i < sizeof models / sizeof *models; i++) {
        if (has_name(gpu_class, models[i].name)) {
            return models[i].vendor;
        }
    }
    return stk_spec_is_slice(gpu_class) ? "nvidia" : NULL;
}

bool stk_spec_is_other_model(const char *gpu_class, const char *model)
{
    bool is_named = false;
    for (size_t i = 0; gpu_class != NULL && model != NULL && i < sizeof models / sizeof *models;
         i++) {
        if (models[i].model == NULL || !has_name(gpu_class, models[i].name)) {
            continue;
        }
        if (has_name(model, models[i].name) || strcasecmp(models[i].model, model) == 0) {
            return false;
        }
        is_named = true;
    }
    return is_named;
}

int64_t stk_spec_model_memory(const char *model)
{
    for (size_t i = 0; model != NULL && i < sizeof models / sizeof *models; i++) {
        if (models[i].model != NULL && strcasecmp(models[i].model, model) == 0) {
            return models[i].memory_mib << 20;
        }
    }
    return -1;
}

/* True for "H100-SXM" and "NVIDIA H100 80GB HBM3". */
static bool is_alias(const char *gpu_class, const char *model)
{
    for (size_t i = 0; model != NULL && i < sizeof models / sizeof *models; i++) {
        if (models[i].model != NULL && strcasecmp(models[i].model, model) == 0 &&
            strcasecmp(models[i].name, gpu_class) == 0) {
            return true;
        }
    }
    return false;
}

bool stk_spec_names_slice(const char *gpu_class, const char *profile)
{
    word first;
    word mig = {"mig", 3};
    const char *text = profile;
    return gpu_class != NULL &&
           (has_word(gpu_class, mig) || (next_word(&text, &first) && has_word(gpu_class, first)));
}

bool stk_spec_device_fits(const char *gpu_class, const char *gpu_vendor,
                          const stk_spec_device *device)
{
    if (gpu_vendor != NULL &&
        (device->vendor == NULL || strcasecmp(gpu_vendor, device->vendor) != 0)) {
        return false;
    }
    const char *rest = gpu_class;
    word w;
    if (gpu_class != NULL && is_alias(gpu_class, device->model)) {
        return true; /* whether the class means a slice is checked elsewhere */
    }
    while (next_word(&rest, &w)) {
        if (!has_word(device->model, w) && !has_word(device->vendor, w) &&
            !has_word(device->profile, w) && !has_word(device->noun, w) && !is_filler(w) &&
            !is_its_memory(w, device->memory_bytes)) {
            return false;
        }
    }
    return true;
}
