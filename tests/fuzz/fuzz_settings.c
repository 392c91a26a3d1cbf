/* Any bytes as the settings of a step, in a pipeline that has every setting, so that each is merged
 * with an existing one. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/limits.h"
#include "fuzz.h"
#include "model/spec/spec.h"

static const char before[] =
    "stoker: 1\nname: p\nresources: {cpu_count: 1, memory: 1GB, max_replicas: 1, gpu_count: 1,\n"
    "  gpu_memory: 1GB, gpu_class: A100, gpu_vendor: nvidia, any_of: [{gpu_count: 2}]}\n"
    "on_oom: {memory: 2, gpu_memory: x2}\nxid: {13: restart}\nsample: 1\n"
    "gpu_profile: {interval: 2}\n"
    "retry: {max_retries: 1, delay: 1}\ntimeout: 5\ncache: {salt: s, files: [f]}\n"
    "environment: {A: x, B: 1}\nsecrets: [s]\ndocker: {parent_image: i, build_config: {a: 1}}\n"
    "backend: {slurm: {partition: p}}\nhooks: {on_start: {run: x}}\ntags: [t]\nextra: {a: {b: 1}}\n"
    "parameters: {p: 1}\nsteps:\n  s: {run: x, outputs: [o]}\n  t:\n    run: y\n";

static bool is_share(int64_t bytes)
{
    return bytes > 0 || bytes == -1 || bytes == STK_GPU_MEMORY_AUTO;
}

static bool is_vendor(const char *name)
{
    return name == NULL || strcmp(name, "nvidia") == 0 || strcmp(name, "amd") == 0 ||
           strcmp(name, "intel") == 0 || strcmp(name, "aws") == 0 || strcmp(name, "google") == 0;
}

static void check_devices(const stk_settings *s)
{
    const stk_resources *r = &s->resources;
    fuzz_require(r->base.gpu_count >= 0 && is_share(r->base.gpu_memory_bytes) &&
                     is_vendor(r->base.gpu_vendor),
                 "device counts, shares and vendors are valid");
    fuzz_require(r->n_any_of <= STK_LIMIT_ASKS, "alternatives are few");
    for (uint32_t i = 0; i < r->n_any_of; i++) {
        const stk_alternative *a = &r->any_of[i];
        fuzz_require((a->gpu_count == -1 || a->gpu_count > 0) && is_share(a->gpu_memory_bytes) &&
                         is_vendor(a->gpu_vendor),
                     "and each asks for something");
    }
    fuzz_require(s->on_oom.memory > 1 && s->on_oom.gpu_memory > 1 && s->on_oom.memory <= 1000 &&
                     s->on_oom.gpu_memory <= 1000,
                 "more is more");
    fuzz_require(s->xid != NULL && strncmp(s->xid, "13=", 3) == 0, "Xids keep their order");
    fuzz_require(s->sample_ms >= 10 && s->sample_ms <= 3600000 &&
                     s->gpu_profile.interval_ms >= 10 && s->gpu_profile.artifact_prefix != NULL,
                 "samples are neither too many nor too few");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    STK_BUF_AUTO text = STK_BUF_INIT(16u << 20);
    stk_spec *spec = NULL;
    stk_err err = {0};
    stk_buf_text(&text, before);
    stk_buf_text(&text, "    ");
    for (size_t i = 0; i < size; i++) { /* in the step's column */
        stk_buf_char(&text, (char)data[i]);
        if (data[i] == '\n') {
            stk_buf_text(&text, "    ");
        }
    }
    if (text.failed) {
        return 0;
    }
    int rc = stk_spec_parse(text.data, text.len, &(stk_spec_place){.path = "p.yaml"}, &spec, &err);
    if (rc < 0) {
        fuzz_require(rc == err.code && err.text[0] != '\0', "a refusal says why");
        return 0;
    }
    const stk_settings *top = stk_spec_settings(spec);
    fuzz_require(top->n_env == 2 && top->n_secrets == 1 && top->resources.cpu_milli == 1000,
                 "a step leaves the pipeline's settings alone");
    for (uint32_t i = 0; i < stk_spec_n_steps(spec); i++) {
        const stk_settings *s = stk_spec_step(spec, i)->settings;
        fuzz_require(s->n_env >= 2 && s->n_secrets >= 1, "and takes nothing away from them");
        fuzz_require(s->timeout_ms >= 0 && s->grace_ms >= 0 && s->retry.delay_ms >= 0 &&
                         s->retry.jitter >= 0 && s->retry.jitter <= 1 && s->retry.backoff >= 0,
                     "times are times");
        fuzz_require(s->resources.cpu_milli != 0 && s->resources.memory_bytes != 0,
                     "unset is -1, asked is more than nothing");
        check_devices(s);
        for (uint32_t k = 0; k < s->n_env; k++) {
            fuzz_require(s->env[k].key[0] != '\0' && s->env[k].value != NULL,
                         "variables have names");
        }
    }
    stk_spec_free(spec);
    return 0;
}
