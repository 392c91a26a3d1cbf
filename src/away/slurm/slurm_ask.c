/* The devices of a job in Slurm's words. Pure. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "away/slurm/slurm_private.h"
#include "base/text.h"

static bool is_gpu_vendor(const char *vendor)
{
    return vendor == NULL || strcmp(vendor, "nvidia") == 0 || strcmp(vendor, "amd") == 0 ||
           strcmp(vendor, "intel") == 0;
}

static int check_want(const stk_alternative *want, bool is_of_pilot, stk_err *err)
{
    const char *vendor = stk_spec_vendor_of(want);
    const char *by_class = stk_spec_vendor_of_class(want->gpu_class);
    if (by_class != NULL && vendor != NULL && strcmp(by_class, vendor) != 0) {
        return stk_err_set(
            err, STK_E_SPEC,
            "gpu_class '%s' means devices of %s, but gpu_vendor is %s; remove one of them",
            want->gpu_class, by_class, vendor);
    }
    if (!is_gpu_vendor(vendor)) {
        return stk_err_set(err, STK_E_SPEC,
                           "jobs of Slurm get GPUs, and devices of %s (gpu_class or gpu_vendor) "
                           "are others; run the step on Kubernetes or AWS Batch",
                           vendor);
    }
    bool is_share = want->gpu_memory_bytes > 0 || want->gpu_memory_bytes == STK_GPU_MEMORY_AUTO;
    if (is_share && !is_of_pilot) {
        return stk_err_set(err, STK_E_SPEC,
                           "Slurm gives whole GPUs, no shares of their memory; set the option "
                           "`pilot`, so that steps share the GPUs of one job, remove gpu_memory, "
                           "or name a slice as the cluster does (gpu_class: 1g.10gb)");
    }
    if (stk_spec_is_slice(want->gpu_class) && strcasecmp(want->gpu_class, "mig") == 0) {
        return stk_err_set(err, STK_E_SPEC,
                           "gpu_class '%s' is any slice, but Slurm needs the type of one; name it "
                           "as the cluster does (gpu_class: 1g.10gb)",
                           want->gpu_class);
    }
    return 0;
}

/* One job asks for one kind of GPU. */
static int check_alike(const stk_alternative *wants, uint32_t n, bool is_of_pilot, stk_err *err)
{
    for (uint32_t i = 0; i < n; i++) {
        STK_TRY(check_want(&wants[i], is_of_pilot, err));
        if (wants[i].gpu_count != wants[0].gpu_count ||
            wants[i].gpu_memory_bytes != wants[0].gpu_memory_bytes ||
            !stk_text_same(wants[i].gpu_class, wants[0].gpu_class) ||
            !stk_text_same(stk_spec_vendor_of(&wants[i]), stk_spec_vendor_of(&wants[0]))) {
            return stk_err_set(err, STK_E_SPEC,
                               "any_of names several kinds of devices, but a job of Slurm asks for "
                               "one; name one of them, or a feature that they share (constraint)");
        }
    }
    return 0;
}

/* The type is the cluster's word for the model that is asked for. */
static int check_type(const stk_alternative *want, const char *type, stk_err *err)
{
    if (type == NULL || want->gpu_class == NULL ||
        (!stk_spec_is_slice(want->gpu_class) && !stk_spec_is_other_model(want->gpu_class, type))) {
        return 0;
    }
    return stk_err_set(err, STK_E_SPEC,
                       "gpu_class '%s' and gpu_type '%s' name different devices; remove one of "
                       "them",
                       want->gpu_class, type);
}

static const char *lower(const char *text, stk_arena *arena)
{
    char *copy = stk_arena_dup(arena, text);
    for (char *c = copy; c != NULL && *c != '\0'; c++) {
        *c = *c == ' ' ? '_' : (char)tolower((unsigned char)*c);
    }
    return copy;
}

static int check_gres(const stk_slurm_options *options, stk_err *err)
{
    const char *gres = stk_slurm_text(options, "gres");
    for (const char *part = gres; part != NULL && *part != '\0'; part += *part == ',') {
        const char *word = part;
        part += strcspn(part, ",");
        if (strncmp(word, "gpu", 3) == 0 && strchr(":=,", word[3]) != NULL) {
            return stk_err_set(err, STK_E_SPEC,
                               "gres is '%s', but Stoker has to know of the GPUs; use gpu_count of "
                               "the step's resources, and gpu_type",
                               gres);
        }
    }
    return 0;
}

int stk_slurm_gpus_of(const stk_remote_job *job, const stk_slurm_options *options, bool is_of_pilot,
                      stk_arena *arena, stk_slurm_gpus *ret, stk_err *err)
{
    stk_alternative wants[STK_LIMIT_ASKS];
    uint32_t n = stk_spec_alternatives(job->resources, wants);
    const char *type = stk_slurm_text(options, "gpu_type");
    *ret = (stk_slurm_gpus){0};
    STK_TRY(check_gres(options, err));
    if (n == 0) {
        return 0;
    }
    STK_TRY(check_alike(wants, n, is_of_pilot, err));
    STK_TRY(check_type(&wants[0], type, err));
    ret->n = (uint32_t)wants[0].gpu_count;
    ret->type = type;
    if (type == NULL && wants[0].gpu_class != NULL) {
        ret->type = lower(wants[0].gpu_class, arena);
        STK_TRY(stk_err_if_null(ret->type, err));
    }
    if (ret->type != NULL && strpbrk(ret->type, ":,= ") != NULL) {
        return stk_err_set(err, STK_E_SPEC, "'%s' can't be a type of GPUs in Slurm", ret->type);
    }
    return 0;
}

/* Of one node: "gpu:a100:4(S:0-1),shm:1". */
static uint32_t count_gpus(const char *gres, const char *type)
{
    uint32_t n = 0;
    for (const char *part = gres; *part != '\0'; part += strspn(part, ",")) {
        const char *name = part, *colon = NULL;
        size_t n_name = strcspn(part, ":(,"), n_type = 0;
        part += n_name;
        for (; *part == ':'; part += 1 + strcspn(part + 1, ":(,")) {
            n_type = colon == NULL ? 0 : (size_t)(part - colon - 1);
            colon = part;
        }
        part += *part == '(' ? strcspn(part, ")") + 1 : 0; /* a list of sockets has commas */
        bool is_gpu = n_name == 3 && strncmp(name, "gpu", 3) == 0;
        bool is_type = type == NULL || (strlen(type) == n_type &&
                                        strncasecmp(type, name + n_name + 1, n_type) == 0);
        if (is_gpu && is_type && colon != NULL) {
            n += (uint32_t)strtoul(colon + 1, NULL, 10);
        }
    }
    return n;
}

uint32_t stk_slurm_most_gpus(const char *lines, const char *type, bool of_default)
{
    uint32_t most = 0;
    for (const char *line = lines; *line != '\0'; line += strspn(line, "\n")) {
        char gres[1024];
        size_t len = strcspn(line, "\n");
        const char *bar = memchr(line, '|', len);
        if (bar != NULL && bar > line && (!of_default || bar[-1] == '*')) {
            (void)snprintf(gres, sizeof gres, "%.*s", (int)(len - (size_t)(bar - line) - 1),
                           bar + 1);
            uint32_t n = count_gpus(gres, type);
            most = n > most ? n : most;
        }
        line += len;
    }
    return most;
}
