/* Any bytes as the settings of a step, in a pipeline that has every setting itself, so that each is
 * merged with one that is there. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "fuzz.h"
#include "spec/spec.h"

static const char before[] =
    "stoker: 1\nname: p\nresources: {cpu_count: 1, memory: 1GB, max_replicas: 1}\n"
    "retry: {max_retries: 1, delay: 1}\ntimeout: 5\ncache: {salt: s, files: [f]}\n"
    "environment: {A: x, B: 1}\nsecrets: [s]\ndocker: {parent_image: i, build_config: {a: 1}}\n"
    "backend: {slurm: {partition: p}}\nhooks: {on_start: {run: x}}\ntags: [t]\nextra: {a: {b: 1}}\n"
    "parameters: {p: 1}\nsteps:\n  s: {run: x, outputs: [o]}\n  t:\n    run: y\n";

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
    int rc = stk_spec_parse(text.data, text.len, "p.yaml", &spec, &err);
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
        for (uint32_t k = 0; k < s->n_env; k++) {
            fuzz_require(s->env[k].key[0] != '\0' && s->env[k].value != NULL,
                         "variables have names");
        }
    }
    stk_spec_free(spec);
    return 0;
}
