#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/limits.h"
#include "base/testing.h"
#include "model/spec/spec.h"

#define HEAD "stoker: 1\nname: p\n"
#define STEP(fields) HEAD "steps:\n  a: {run: x, outputs: [o]}\n  b: {run: y, " fields "}\n"

static char *message_of(const char *text, int *ret_code)
{
    stk_spec *spec = NULL;
    stk_err err = {0};
    char message[1200] = "fine";
    *ret_code =
        stk_spec_parse(text, strlen(text), &(stk_spec_place){.path = "p.yaml"}, &spec, &err);
    if (*ret_code < 0) {
        (void)stk_err_format(&err, message, sizeof message);
    }
    stk_spec_free(spec);
    return strdup(message);
}

static stk_spec *parse(const char *text)
{
    stk_spec *spec = NULL;
    stk_err err = {0};
    char message[1200];
    if (stk_spec_parse(text, strlen(text), &(stk_spec_place){.path = "/p/p.yaml", .folder = "/p"},
                       &spec, &err) < 0) {
        fail_msg("%s", stk_err_format(&err, message, sizeof message));
    }
    return spec;
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int code;
        const char *expected;
    } cases[] = {
        /* the document */
        {"[1]", STK_E_SPEC, "p.yaml:1: a pipeline must be a mapping, not a list"},
        {"name: p", STK_E_SPEC, "p.yaml:1: the version of the format is missing: add 'stoker: 1'"},
        {"new: 1\nstoker: 2", STK_E_VERSION,
         "p.yaml:2: the document has format 2, but this Stoker reads formats up to 1; upgrade "
         "Stoker"},
        {"stoker: one", STK_E_SPEC,
         "p.yaml:1: 'stoker' must be 1, the version of this format, not 'one'"},
        {"stoker: 1", STK_E_SPEC, "p.yaml:1: 'name' is missing"},
        {HEAD, STK_E_SPEC, "p.yaml:1: 'steps' is missing"},
        {HEAD "step: {}", STK_E_SPEC, "p.yaml:3: unknown key 'step'; did you mean 'steps'?"},
        {HEAD "timeuot: 5", STK_E_SPEC, "p.yaml:3: unknown key 'timeuot'; did you mean 'timeout'?"},
        {HEAD "steps: [a]", STK_E_SPEC, "p.yaml:3: 'steps' must be a mapping, not a list"},
        {"stoker: 1\nname: a b\nsteps: {}", STK_E_SPEC,
         "p.yaml:2: 'name' must be a name of at most 128 letters, digits and _ . - that doesn't "
         "begin with . or -, not 'a b'"},
        {HEAD "mode: fast\nsteps: {}", STK_E_SPEC,
         "p.yaml:3: 'mode' must be continue_on_failure, stop_on_failure or fail_fast, not 'fast'"},
        {HEAD "origin: {cwd: rel}\nsteps: {}", STK_E_SPEC,
         "p.yaml:3: 'origin.cwd' must be an absolute path, not 'rel'"},
        {HEAD "origin: {argv: x}\nsteps: {}", STK_E_SPEC,
         "p.yaml:3: 'origin.argv' must be a list of strings, not 'x'"},
        {HEAD "origin: {pyhton: x}\nsteps: {}", STK_E_SPEC,
         "p.yaml:3: unknown key 'pyhton' in 'origin'; did you mean 'python'?"},
        /* parameters */
        {HEAD "parameters: {a: {type: int, default: x}}\nsteps: {}", STK_E_SPEC,
         "p.yaml:3: 'a' must be int, not 'x'"},
        {HEAD "parameters: {a: {typ: int}}\nsteps: {}", STK_E_SPEC,
         "p.yaml:3: unknown key 'typ' in 'a'; write a parameter as its default or as {type, "
         "default, help, required}; a default that is a mapping as {default: {…}}"},
        {HEAD "parameters: {a: {type: number}}\nsteps: {}", STK_E_SPEC,
         "p.yaml:3: 'type' must be int, float, str, bool or json, not 'number'"},
        {HEAD "parameters: {a: {default: 1, required: true}}\nsteps: {}", STK_E_SPEC,
         "p.yaml:3: parameter 'a': 'required' and 'default' exclude each other"},
        {HEAD "parameters: {a b: 1}\nsteps: {}", STK_E_SPEC,
         "p.yaml:3: parameter 'a b': a name is made of letters, digits and _ . -"},
        /* steps */
        {HEAD "steps:\n  a.b: {run: x}", STK_E_SPEC,
         "p.yaml:4: step 'a.b': a step's name must have only letters, digits, _ and -, at most "
         "128"},
        {HEAD "steps:\n  a: x", STK_E_SPEC,
         "p.yaml:4: step 'a': a step must be a mapping with 'run' or 'python', not a string"},
        {HEAD "steps:\n  a:\n    description: x", STK_E_SPEC,
         "p.yaml:4: step 'a': 'run' or 'python' is missing"},
        {STEP("python: 'm:f'"), STK_E_SPEC,
         "p.yaml:5: step 'b': 'run' and 'python' exclude each other"},
        {HEAD "steps:\n  a: {python: train}", STK_E_SPEC,
         "p.yaml:4: step 'a': 'python' must be module:function, not 'train'"},
        {HEAD "steps:\n  a: {python: 'm:f', interpreter: bin/python}", STK_E_SPEC,
         "p.yaml:4: step 'a': 'interpreter' must be the absolute path of a Python interpreter, not "
         "'bin/python'"},
        {HEAD "steps:\n  a: {run: x, interpreter: /bin/python}", STK_E_SPEC,
         "p.yaml:4: step 'a': 'interpreter' is only for Python steps; a command names its own"},
        {HEAD "steps:\n  a: {python: 'm:f', cwd: x}", STK_E_SPEC,
         "p.yaml:4: step 'a': 'cwd' is only for commands; a Python step runs in the folder of its "
         "pipeline"},
        {HEAD "steps:\n  a: {run: []}", STK_E_SPEC,
         "p.yaml:4: step 'a': 'run' must be a command: a string for /bin/sh, or a list of words, "
         "not a list"},
        {HEAD "steps:\n  a: {run: [x, [y]]}", STK_E_SPEC,
         "p.yaml:4: step 'a': 'run' must be a list of strings and numbers, not a list"},
        {HEAD "steps:\n  train:\n    run: x\n    resorces: {}", STK_E_SPEC,
         "p.yaml:6: step 'train': unknown key 'resorces'; did you mean 'resources'?"},
        {STEP("env: {A: 1}"), STK_E_SPEC,
         "p.yaml:5: step 'b': unknown key 'env'; did you mean 'environment'?"},
        {STEP("outputs: [x, x]"), STK_E_SPEC, "p.yaml:5: step 'b': output 'x' is listed twice"},
        {STEP("outputs: [.x]"), STK_E_SPEC,
         "p.yaml:5: step 'b': 'outputs' must be names of letters, digits and _ . - that don't "
         "begin with . or -, not '.x'"},
        {STEP("outputs: {x: {tpye: json}}"), STK_E_SPEC,
         "p.yaml:5: step 'b': unknown key 'tpye' in 'x'; did you mean 'type'?"},
        /* links */
        {STEP("inputs: {i: {from: aa.o}}"), STK_E_SPEC,
         "p.yaml:5: step 'b': inputs.i: there is no step 'aa'; did you mean 'a'?"},
        {STEP("inputs: {i: {from: a.out}}"), STK_E_SPEC,
         "p.yaml:5: step 'b': inputs.i: step 'a' has no output 'out'; its output is 'o'"},
        {STEP("inputs: {i: {from: b.o}}"), STK_E_SPEC,
         "p.yaml:5: step 'b': inputs.i: step 'b' declares no outputs"},
        {STEP("inputs: {i: {from: a}}"), STK_E_SPEC,
         "p.yaml:5: step 'b': inputs.i: 'a' names a step without its output; write a.o"},
        {STEP("inputs: {i: {param: lr}}"), STK_E_SPEC,
         "p.yaml:5: step 'b': inputs.i: the pipeline has no parameter 'lr'"},
        {STEP("inputs: {i: {artifact: abc}}"), STK_E_SPEC,
         "p.yaml:5: step 'b': 'inputs.i' must be a digest of 64 lower-case hex digits, not 'abc'"},
        {STEP("inputs: {i: {fron: a.o}}"), STK_E_SPEC,
         "p.yaml:5: step 'b': unknown key 'fron' in 'inputs.i'; did you mean 'from'?"},
        {STEP("inputs: {i: {lr: 1}}"), STK_E_SPEC,
         "p.yaml:5: step 'b': unknown key 'lr' in 'inputs.i'; write a mapping that is the value as "
         "{value: {…}}"},
        {STEP("inputs: {i: {}}"), STK_E_SPEC,
         "p.yaml:5: step 'b': 'inputs.i' needs exactly one of from, param, file, artifact, item "
         "and value; write a mapping that is the value as {value: {…}}"},
        {STEP("inputs: {i/j: 1}"), STK_E_SPEC,
         "p.yaml:5: step 'b': input 'i/j': a name is made of letters, digits and _ . -"},
        {STEP("after: a"), STK_E_SPEC,
         "p.yaml:5: step 'b': 'after' must be a list of steps, not 'a'"},
        {STEP("after: [c]"), STK_E_SPEC,
         "p.yaml:5: step 'b': after: there is no step 'c'; did you mean 'a'?"},
        {STEP("cache: {ignore_inputs: [z]}"), STK_E_SPEC,
         "p.yaml:5: step 'b': 'cache.ignore_inputs' names 'z', which isn't an input of the step"},
        /* settings */
        {STEP("resources: {gpu_count: 0.5}"), STK_E_SPEC,
         "p.yaml:5: step 'b': 'resources.gpu_count' is 0.5; it must be a whole number. For a part "
         "of a device ask for its memory: gpu_memory: 10GB"},
        {STEP("resources: {gpu_count: -1}"), STK_E_SPEC,
         "p.yaml:5: step 'b': 'resources.gpu_count' is -1; it must be between 0 and 1000000"},
        {STEP("resources: {cpu_count: 0}"), STK_E_SPEC,
         "p.yaml:5: step 'b': 'resources.cpu_count' is 0; it must be more than 0 and at most "
         "1000000"},
        {STEP("resources: {memory: 4XB}"), STK_E_SPEC,
         "p.yaml:5: step 'b': 'resources.memory' must be an amount like 16GB, 8 GiB or 1.5GB, not "
         "'4XB'"},
        {STEP("resources: {memory: 0}"), STK_E_SPEC,
         "p.yaml:5: step 'b': 'resources.memory' is 0 bytes, but a step needs at least 6 MiB to "
         "start; write an amount like 16GB, 8 GiB or 1.5GB"},
        {STEP("resources: {gpus: 2}"), STK_E_SPEC,
         "p.yaml:5: step 'b': unknown key 'gpus' in 'resources'; did you mean 'gpu_count'?"},
        {STEP("resources: {gpu_memory: 10XB}"), STK_E_SPEC,
         "p.yaml:5: step 'b': 'resources.gpu_memory' must be an amount like 10GB or 8 GiB, or "
         "auto, "
         "not '10XB'"},
        {STEP("resources: {gpu_memory: 10}"), STK_E_SPEC,
         "p.yaml:5: step 'b': 'resources.gpu_memory' is 10, less than 1 MiB; write an amount with "
         "its unit, like 10GB"},
        {STEP("resources: {gpu_memory: 0GB}"), STK_E_SPEC,
         "p.yaml:5: step 'b': 'resources.gpu_memory' is 0GB; it must be more than 0"},
        {STEP("resources: {gpu_memroy: 1GB}"), STK_E_SPEC,
         "p.yaml:5: step 'b': unknown key 'gpu_memroy' in 'resources'; did you mean 'gpu_memory'?"},
        {STEP("resources: {gpu_vendor: nvidea}"), STK_E_SPEC,
         "p.yaml:5: step 'b': 'resources.gpu_vendor' must be nvidia, amd, intel, aws (neuron), "
         "google (tpu) or habana (gaudi), not 'nvidea'; did you mean 'nvidia'?"},
        {STEP("resources: {any_of: {gpu_class: A100}}"), STK_E_SPEC,
         "p.yaml:5: step 'b': 'resources.any_of' must be a list of mappings, not a mapping"},
        {STEP("resources: {any_of: [{gpu_class: A100},\n      {gpu_clas: H100}]}"), STK_E_SPEC,
         "p.yaml:6: step 'b': unknown key 'gpu_clas' in 'resources.any_of'; did you mean "
         "'gpu_class'?"},
        {STEP("resources: {any_of: [{gpu_count: 0}]}"), STK_E_SPEC,
         "p.yaml:5: step 'b': 'resources.any_of' has an alternative of 0 devices; remove it, and "
         "use --policy fit to run without devices"},
        {STEP("resources: {any_of: [{}, {}, {}, {}, {}, {}, {}, {}, {}]}"), STK_E_LIMIT,
         "p.yaml:5: step 'b': 'resources.any_of' has 9 alternatives; 8 is the limit"},
        {STEP("on_oom: {gpu_memory: twice}"), STK_E_SPEC,
         "p.yaml:5: step 'b': 'on_oom.gpu_memory' must be a factor like 2 or x2, not 'twice'"},
        {STEP("on_oom: {memory: 1x}"), STK_E_SPEC,
         "p.yaml:5: step 'b': 'on_oom.memory' is 1x; it must be more than 1 and at most 1000"},
        {STEP("on_oom: {gpumemory: 2}"), STK_E_SPEC,
         "p.yaml:5: step 'b': unknown key 'gpumemory' in 'on_oom'; did you mean 'gpu_memory'?"},
        {STEP("on_oom: {max_retries: 3}"), STK_E_SPEC,
         "p.yaml:5: step 'b': 'on_oom' needs 'memory' or 'gpu_memory', the factor by which the "
         "next attempt asks for more: {gpu_memory: 2}"},
        {STEP("xid: {GPU: ignore}"), STK_E_SPEC,
         "p.yaml:5: step 'b': 'xid' has 'GPU', but an Xid is a number like 109"},
        {STEP("xid: {109: quarantin}"), STK_E_SPEC,
         "p.yaml:5: step 'b': 'xid.109' must be ignore, restart, quarantine or node, not "
         "'quarantin'; did you mean 'quarantine'?"},
        {STEP("sample: 5ms"), STK_E_SPEC,
         "p.yaml:5: step 'b': 'sample' is 5ms; it must be between 0.01 and 3600 seconds"},
        {STEP("gpu_profile: yes"), STK_E_SPEC,
         "p.yaml:5: step 'b': 'gpu_profile' must be true, false or a mapping, not 'yes'"},
        {STEP("gpu_profile: {with_crad: true}"), STK_E_SPEC,
         "p.yaml:5: step 'b': unknown key 'with_crad' in 'gpu_profile'; did you mean 'with_card'?"},
        {STEP("gpu_profile: {interval: 0}"), STK_E_SPEC,
         "p.yaml:5: step 'b': 'gpu_profile.interval' is 0; it must be between 0.01 and 3600 "
         "seconds"},
        {STEP("docker: {parent_imge: x}"), STK_E_SPEC,
         "p.yaml:5: step 'b': unknown key 'parent_imge' in 'docker'; did you mean 'parent_image'?"},
        {STEP("docker: {entrypoint: kep}"), STK_E_SPEC,
         "p.yaml:5: step 'b': 'entrypoint' must be bypass or keep, not 'kep'; did you mean "
         "'keep'?"},
        {STEP("docker: {build_config:\n     {build_options: {no_cahce: true}}}"), STK_E_SPEC,
         "p.yaml:6: step 'b': unknown key 'no_cahce' in 'build_options'; did you mean 'no_cache'?"},
        {STEP("docker: {build_options: {platform: amd64}}"), STK_E_SPEC,
         "p.yaml:5: step 'b': 'platform' must be a platform like linux/amd64, not 'amd64'"},
        {STEP("backend: {dokcer: {}}"), STK_E_SPEC,
         "p.yaml:5: step 'b': unknown key 'dokcer' in 'backend'; did you mean 'docker'?"},
        {STEP("backend: {docker: {shm_szie: 1g}}"), STK_E_SPEC,
         "p.yaml:5: step 'b': unknown key 'shm_szie' in 'backend.docker'; did you mean "
         "'shm_size'?"},
        {STEP("backend: {docker: {shm_size: lots}}"), STK_E_SPEC,
         "p.yaml:5: step 'b': 'shm_size' must be a size above 0, like 64m or 8GB, not 'lots'"},
        {STEP("backend: {docker: {network: hots}}"), STK_E_SPEC,
         "p.yaml:5: step 'b': 'network' must be host, bridge or none, not 'hots'; did you mean "
         "'host'?"},
        {STEP("backend: {docker: {ulimits: {nofiles: 9}}}"), STK_E_SPEC,
         "p.yaml:5: step 'b': unknown key 'nofiles' in 'ulimits'; did you mean 'nofile'?"},
        {STEP("backend: {docker: {ulimits: {nofile: '9'}}}"), STK_E_SPEC,
         "p.yaml:5: step 'b': 'nofile' must be a whole number, not '9'"},
        {STEP("backend: {docker: {ulimits: [{name: nofiles, soft: 9}]}}"), STK_E_SPEC,
         "p.yaml:5: step 'b': unknown limit 'nofiles' in 'ulimits'; did you mean 'nofile'?"},
        {STEP("backend: {docker: {ulimits: [{name: nofile}]}}"), STK_E_SPEC,
         "p.yaml:5: step 'b': an item of 'ulimits' needs `name`, and `soft` or `hard`"},
        {STEP("backend: {docker: {ulimits: [{Name: nofile, Hard: -2}]}}"), STK_E_SPEC,
         "p.yaml:5: step 'b': 'nofile' is -2; it must be between -1 and 9223372036854775807"},
        {STEP("backend: {docker: {ulimits: [nofile]}}"), STK_E_SPEC,
         "p.yaml:5: step 'b': 'ulimits' must be a list of {name: nofile, soft: 1024, hard: 4096}, "
         "not 'nofile'"},
        {STEP("backend: {docker: {run_args: {shmsize: 1g}}}"), STK_E_SPEC,
         "p.yaml:5: step 'b': unknown key 'shmsize' in 'run_args'; did you mean 'shm_size'?"},
        {STEP("uses: torch"), STK_E_SPEC,
         "p.yaml:5: step 'b': 'uses' must be a list of strings, not 'torch'"},
        {STEP("timeout: soon"), STK_E_SPEC,
         "p.yaml:5: step 'b': 'timeout' must be a time like 90, 90s, 10m or 2h, not 'soon'"},
        {STEP("timeout: 400d"), STK_E_SPEC,
         "p.yaml:5: step 'b': 'timeout' is 400d; it must be between 0 and 366 days"},
        {STEP("timeout: -1"), STK_E_SPEC,
         "p.yaml:5: step 'b': 'timeout' is -1; it must be between 0 and 366 days"},
        {STEP("retry: 3"), STK_E_SPEC, "p.yaml:5: step 'b': 'retry' must be a mapping, not 3"},
        {STEP("gang: 2"), STK_E_SPEC,
         "p.yaml:5: step 'b': 'gang' must be a mapping, not 2; for two ranks write gang: {ranks: "
         "2}"},
        {STEP("retry: {jitter: 2}"), STK_E_SPEC,
         "p.yaml:5: step 'b': 'retry.jitter' is 2; it must be between 0 and 1"},
        {STEP("environment: {A=B: x}"), STK_E_SPEC,
         "p.yaml:5: step 'b': 'A=B' isn't a valid name of an environment variable"},
        {STEP("environment: {A: [x]}"), STK_E_SPEC,
         "p.yaml:5: step 'b': 'A' must be text, not a list"},
        {STEP("hooks: {on_end: {run: x, python: 'm:f'}}"), STK_E_SPEC,
         "p.yaml:5: step 'b': 'on_end' needs exactly one of 'run' and 'python'"},
        {STEP("hooks: {on_fail: {run: x}}"), STK_E_SPEC,
         "p.yaml:5: step 'b': unknown key 'on_fail' in 'hooks'; did you mean 'on_failure'?"},
        {STEP("isolation: thread"), STK_E_SPEC,
         "p.yaml:5: step 'b': 'isolation' must be fork or spawn, not 'thread'"},
        {STEP("backend: {slurm: 1}"), STK_E_SPEC,
         "p.yaml:5: step 'b': 'slurm' must be a mapping of the backend's options, not 1"},
        {STEP("secrets: [a b]"), STK_E_SPEC,
         "p.yaml:5: step 'b': secret 'a b': a name is made of letters, digits and _ . -"},
        {STEP("cache: maybe"), STK_E_SPEC,
         "p.yaml:5: step 'b': 'cache' must be true, false or a mapping, not 'maybe'"},
        {STEP("description: \"x\\0y\""), STK_E_SPEC,
         "p.yaml:5: step 'b': 'description' holds a NUL byte"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int code;
        char *got = message_of(cases[i].text, &code);
        assert_string_equal(got, cases[i].expected);
        assert_int_equal(code, cases[i].code);
        free(got);
    }
}

static void test_document(void **state)
{
    (void)state;
    stk_spec *spec =
        parse("stoker: 1\n"
              "name: digits.v2\n"
              "description: a text\n"
              "mode: fail_fast\n"
              "parameters: {epochs: 30, lr: {type: float, default: 1, help: rate}}\n"
              "steps:\n"
              "  split: {run: ./split, outputs: {train: {type: dir, tags: [t]}, test: }}\n"
              "  train:\n"
              "    python: 'm:train'\n"
              "    inputs:\n"
              "      data: {from: split.train}\n"
              "      both: {from: [split.train, split.test]}\n"
              "      epochs: {param: epochs}\n"
              "      table: {file: t.csv}\n"
              "      lit: {value: {a: [1, 2.50]}}\n"
              "      bare: [1, x]\n"
              "      nothing:\n"
              "      ready: {artifact: 0123456789abcdef0123456789abcdef0123456789abcdef"
              "0123456789abcdef, format: npy, type: null}\n"
              "    after: [split]\n"
              "    code: {z: d1, a: d2}\n"
              "    source: 'm.py:3'\n"
              "  sum: {run: [awk, -f, 1.50], cwd: sub, timeout: null}\n");
    assert_string_equal(stk_spec_name(spec), "digits.v2");
    assert_string_equal(stk_spec_description(spec), "a text");
    assert_string_equal(stk_spec_folder(spec), "/p");
    assert_int_equal(stk_spec_mode(spec), STK_MODE_FAIL_FAST);
    assert_int_equal(stk_spec_n_steps(spec), 3);
    assert_int_equal(stk_spec_find(spec, "train"), 1);
    assert_int_equal(stk_spec_find(spec, "none"), -1);
    const stk_step *split = stk_spec_step(spec, 0);
    assert_int_equal(split->n_argv, 3);
    assert_string_equal(split->argv[0], "/bin/sh");
    assert_string_equal(split->argv[2], "./split");
    assert_null(split->argv[3]);
    assert_string_equal(split->cwd, "/p");
    assert_string_equal(split->outputs[0].type, "dir");
    assert_string_equal(split->outputs[0].tags[0], "t");
    assert_null(split->outputs[1].type);
    const stk_step *train = stk_spec_step(spec, 1);
    assert_int_equal(train->line, 8);
    assert_null(train->argv);
    assert_null(train->cwd);
    assert_int_equal(train->n_inputs, 8);
    assert_int_equal(train->inputs[0].kind, STK_INPUT_OUTPUT);
    assert_int_equal(train->inputs[0].step, 0);
    assert_int_equal(train->inputs[1].kind, STK_INPUT_LIST);
    assert_int_equal(train->inputs[1].items[1].output, 1);
    assert_int_equal(train->inputs[2].kind, STK_INPUT_PARAM);
    assert_int_equal(train->inputs[2].i_param, 0);
    assert_int_equal(train->inputs[3].kind, STK_INPUT_FILE);
    assert_string_equal(train->inputs[4].text, "{\"a\":[1,2.50]}");
    assert_string_equal(train->inputs[5].text, "[1,\"x\"]");
    assert_string_equal(train->inputs[6].text, "null");
    assert_int_equal(train->inputs[7].kind, STK_INPUT_ARTIFACT);
    assert_string_equal(train->inputs[7].about, "{\"format\":\"npy\"}");
    assert_int_equal(train->after[0], 0);
    assert_string_equal(train->code[0].key, "a");
    assert_string_equal(train->source, "m.py:3");
    const stk_step *sum = stk_spec_step(spec, 2);
    assert_string_equal(sum->argv[2], "1.50");
    assert_string_equal(sum->cwd, "/p/sub");
    assert_ptr_equal(sum->settings, stk_spec_settings(spec));
    assert_string_equal(stk_spec_param(spec, 1)->value, "1.0");
    assert_string_equal(stk_spec_param(spec, 1)->help, "rate");
    stk_spec_free(spec);
}

/* The stored text means the same wherever it is read, and is already in its canonical form. */
static void test_text(void **state)
{
    (void)state;
    stk_spec *spec = parse(HEAD "steps:\n  a: {run: x, cwd: s}\n");
    const char *text = stk_spec_text(spec, NULL);
    assert_string_equal(text, "{\"stoker\":1,\"name\":\"p\",\"steps\":{\"a\":{\"run\":\"x\","
                              "\"cwd\":\"s\"}},\"origin\":{\"cwd\":\"/p\"}}");
    assert_string_equal(stk_spec_origin(spec), "{\"cwd\":\"/p\"}");
    stk_spec *again = NULL;
    size_t len;
    assert_int_equal(
        stk_spec_parse(text, strlen(text),
                       &(stk_spec_place){.path = "/elsewhere/x.json", .folder = "/elsewhere"},
                       &again, NULL),
        0);
    assert_string_equal(stk_spec_text(again, &len), text);
    assert_int_equal(len, strlen(text));
    assert_string_equal(stk_spec_step(again, 0)->cwd, "/p/s");
    stk_spec_free(spec);
    stk_spec_free(again);
}

static void test_settings(void **state)
{
    (void)state;
    stk_spec *spec =
        parse(HEAD "resources: {memory: 32GB, cpu_count: 0.5, min_replicas: 1}\n"
                   "retry: {max_retries: 2, delay: 1.5}\n"
                   "environment: {A: x, B: 1, C: true, D: 1.10}\n"
                   "secrets: [s1]\n"
                   "docker: {parent_image: i, apt_packages: [a]}\n"
                   "backend: local\n"
                   "cache: {salt: s}\n"
                   "timeout: 90\n"
                   "hooks: {on_start: {run: echo}}\n"
                   "steps:\n"
                   "  a: {run: x}\n"
                   "  b:\n"
                   "    run: x\n"
                   "    resources: {cpu_count: 8, gpu_count: 2, gpu_class: A100, max_replicas: 4}\n"
                   "    retry: {delay: 10s, backoff: 2, jitter: 0.5}\n"
                   "    environment: {B: two, A: null}\n"
                   "    secrets: [s1, s2]\n"
                   "    docker: {parent_image: j, user: null}\n"
                   "    backend: {slurm: {partition: gpu}}\n"
                   "    cache: {enabled: false, reuse: false, expires: 1d}\n"
                   "    timeout: 10m\n"
                   "    grace: 0\n"
                   "    isolation: spawn\n"
                   "    hooks: {on_end: {python: 'm:f'}}\n"
                   "    tags: [t]\n"
                   "    extra: {k: [1]}\n"
                   "  c: {run: x, timeout: 5}\n"
                   "  d: {run: y, timeout: 5}\n");
    const stk_settings *top = stk_spec_settings(spec);
    assert_ptr_equal(stk_spec_step(spec, 0)->settings, top);
    assert_int_equal(top->resources.cpu_milli, 500);
    assert_int_equal(top->resources.memory_bytes, 32000000000);
    assert_int_equal(top->resources.base.gpu_count, -1);
    assert_int_equal(top->retry.max_retries, 2);
    assert_int_equal(top->retry.delay_ms, 1500);
    assert_true(top->retry.backoff == 1.0);
    assert_int_equal(top->timeout_ms, 90000);
    assert_int_equal(top->grace_ms, 5000);
    assert_true(top->cache.enabled && top->cache.reuse);
    const stk_settings *s = stk_spec_step(spec, 1)->settings;
    assert_int_equal(s->resources.cpu_milli, 8000);
    assert_int_equal(s->resources.memory_bytes, 32000000000);
    assert_int_equal(s->resources.base.gpu_count, 2);
    assert_string_equal(s->resources.base.gpu_class, "A100");
    assert_string_equal(s->resources.more, "{\"min_replicas\":1,\"max_replicas\":4}");
    assert_int_equal(s->retry.max_retries, 2);
    assert_int_equal(s->retry.delay_ms, 10000);
    assert_true(s->retry.backoff == 2 && s->retry.jitter == 0.5);
    static const char *const env[][2] = {{"A", "x"}, {"B", "two"}, {"C", "true"}, {"D", "1.10"}};
    assert_int_equal(s->n_env, 4);
    for (int i = 0; i < 4; i++) {
        assert_string_equal(s->env[i].key, env[i][0]);
        assert_string_equal(s->env[i].value, env[i][1]);
    }
    assert_int_equal(s->n_secrets, 2);
    assert_string_equal(s->secrets[1], "s2");
    assert_string_equal(s->docker,
                        "{\"parent_image\":\"j\",\"apt_packages\":[\"a\"],\"user\":null}");
    assert_string_equal(s->backend, "{\"slurm\":{\"partition\":\"gpu\"}}");
    assert_string_equal(top->backend, "\"local\"");
    assert_false(s->cache.enabled || s->cache.reuse);
    assert_int_equal(s->cache.expires_ms, 86400000);
    assert_string_equal(s->cache.salt, "s");
    assert_int_equal(s->timeout_ms, 600000);
    assert_int_equal(s->grace_ms, 0);
    assert_int_equal(s->isolation, STK_ISOLATION_SPAWN);
    assert_string_equal(s->hooks[STK_HOOK_START].run, "echo");
    assert_string_equal(s->hooks[STK_HOOK_END].python, "m:f");
    assert_string_equal(s->tags[0], "t");
    assert_string_equal(s->extra, "{\"k\":[1]}");
    assert_ptr_equal(stk_spec_step(spec, 2)->settings, stk_spec_step(spec, 3)->settings);
    assert_ptr_not_equal(stk_spec_step(spec, 2)->settings, top);
    stk_spec_free(spec);
}

/* A step's settings for devices override the pipeline's. */
static void test_devices(void **state)
{
    (void)state;
    stk_spec *spec =
        parse(HEAD "resources: {gpu_memory: auto, gpu_vendor: TPU, any_of: [{gpu_count: 4}]}\n"
                   "on_oom: {gpu_memory: ×2}\n"
                   "xid: {109: restart, 94: ignore}\n"
                   "gpu_profile: {interval: 100ms, artifact_prefix: prof_}\n"
                   "steps:\n"
                   "  a: {run: x}\n"
                   "  b:\n"
                   "    run: x\n"
                   "    uses: [torch, jax]\n"
                   "    resources:\n"
                   "      gpu_memory: 10GB\n"
                   "      gpu_vendor: null\n"
                   "      any_of:\n"
                   "      - {gpu_class: A100, gpu_count: 2}\n"
                   "      - {gpu_vendor: Neuron, gpu_memory: AUTO, gpu_class: null}\n"
                   "    on_oom: {memory: 1.5x, max_retries: 3}\n"
                   "    xid: {109: null, 13: quarantine}\n"
                   "    sample: 2\n"
                   "    gpu_profile: {with_card: false, include_artifacts: false, interval: null}\n"
                   "  c: {run: x, resources: {any_of: []}, gpu_profile: false, sample: 5}\n"
                   "  d: {run: x, gpu_profile: {interval: 10}, sample: 5, on_oom: {memory: X3}}\n"
                   "  e: {run: x, xid: {94: node}, gpu_profile: {interval: 0.01}}\n");
    const stk_settings *top = stk_spec_settings(spec);
    assert_int_equal(top->resources.base.gpu_memory_bytes, STK_GPU_MEMORY_AUTO);
    assert_int_equal(top->resources.base.gpu_count, -1);
    assert_string_equal(top->resources.base.gpu_vendor, "google");
    assert_int_equal(top->resources.n_any_of, 1);
    assert_int_equal(top->resources.any_of[0].gpu_count, 4);
    assert_int_equal(top->resources.any_of[0].gpu_memory_bytes, -1);
    assert_true(top->on_oom.gpu_memory == 2 && top->on_oom.memory == 0);
    assert_int_equal(top->on_oom.max_retries, 1);
    assert_string_equal(top->xid, "109=restart,94=ignore");
    assert_int_equal(top->sample_ms, 100);
    assert_true(top->gpu_profile.enabled && top->gpu_profile.with_card);
    assert_string_equal(top->gpu_profile.artifact_prefix, "prof_");
    const stk_step *step = stk_spec_step(spec, 1);
    const stk_settings *s = step->settings;
    assert_int_equal(step->n_uses, 2);
    assert_string_equal(step->uses[1], "jax");
    assert_int_equal(stk_spec_step(spec, 0)->n_uses, 0);
    assert_int_equal(s->resources.base.gpu_memory_bytes, 10000000000);
    assert_string_equal(s->resources.base.gpu_vendor, "google");
    assert_int_equal(s->resources.n_any_of, 2);
    assert_string_equal(s->resources.any_of[0].gpu_class, "A100");
    assert_int_equal(s->resources.any_of[0].gpu_count, 2);
    assert_null(s->resources.any_of[0].gpu_vendor);
    assert_string_equal(s->resources.any_of[1].gpu_vendor, "aws");
    assert_int_equal(s->resources.any_of[1].gpu_memory_bytes, STK_GPU_MEMORY_AUTO);
    assert_null(s->resources.any_of[1].gpu_class);
    assert_true(s->on_oom.gpu_memory == 2 && s->on_oom.memory == 1.5);
    assert_int_equal(s->on_oom.max_retries, 3);
    assert_string_equal(s->xid, "109=restart,94=ignore,13=quarantine");
    assert_int_equal(s->sample_ms, 100); /* the interval of the profile */
    assert_true(s->gpu_profile.enabled);
    assert_false(s->gpu_profile.with_card || s->gpu_profile.include_artifacts);
    assert_int_equal(s->gpu_profile.interval_ms, 100);
    s = stk_spec_step(spec, 2)->settings;
    assert_int_equal(s->resources.n_any_of, 0);
    assert_false(s->gpu_profile.enabled);
    assert_int_equal(s->sample_ms, 5000);
    s = stk_spec_step(spec, 3)->settings;
    assert_int_equal(s->sample_ms, 5000);
    assert_true(s->on_oom.memory == 3);
    assert_int_equal(s->on_oom.max_retries, 1);
    s = stk_spec_step(spec, 4)->settings;
    assert_string_equal(s->xid, "109=restart,94=node");
    assert_int_equal(s->sample_ms, 10);
    stk_spec_free(spec);
    /* The document sets nothing. */
    spec = parse(HEAD "steps:\n  a: {run: x}\n");
    s = stk_spec_settings(spec);
    assert_int_equal(s->resources.base.gpu_memory_bytes, -1);
    assert_int_equal(s->sample_ms, 0);
    assert_int_equal(s->on_oom.max_retries, 0);
    assert_false(s->gpu_profile.enabled);
    assert_null(s->xid);
    stk_spec_free(spec);
}

static void test_params(void **state)
{
    (void)state;
    static const struct {
        const char *name, *value;
        bool json;
        const char *expected; /* the value as JSON, or the message */
    } cases[] = {
        {"n", "7", false, "7"},
        {"n", "+7", false, "7"},
        {"n", "7.5", false, "parameter 'n' takes a whole number, not '7.5'"},
        {"n", "x", false, "parameter 'n' takes a whole number, not 'x'"},
        {"lr", "1e-3", false, "0.001"},
        {"lr", ".5", false, "0.5"},
        {"lr", "3", false, "3.0"},
        {"lr", "nan", false, "parameter 'lr' takes a number, not 'nan'"},
        {"lr", "0x10", false, "parameter 'lr' takes a number, not '0x10'"},
        {"s", "12", false, "\"12\""},
        {"s", "a\"b", false, "\"a\\\"b\""},
        {"b", "True", false, "true"},
        {"b", "0", false, "false"},
        {"b", "yes", false, "parameter 'b' takes true or false, not 'yes'"},
        {"j", "{\"a\": [1]}", false, "{\"a\":[1]}"},
        {"j", "{a", false, "parameter 'j' takes JSON, not '{a'"},
        {"any", "5", false, "5"},
        {"any", "five", false, "\"five\""},
        {"need", "2", false, "2"},
        {"rl", "1", false, "pipeline 'p' has no parameter 'rl'; did you mean 'lr'?"},
        {"lr", "2", true, "2.0"},
        {"s", "\"x\"", true, "\"x\""},
        {"s", "5", true, "parameter 's' takes text, not '5'"},
    };
    stk_spec *spec = parse(HEAD "parameters:\n  n: 5\n  lr: 0.1\n  s: text\n  b: false\n  j: [1]\n"
                                "  any:\n  need: {type: int}\nsteps: {}\n");
    stk_err err = {0};
    char message[1200];
    assert_int_equal(stk_spec_check_params(spec, &err), STK_E_USAGE);
    assert_string_equal(stk_err_format(&err, message, sizeof message),
                        "pipeline 'p' needs a value for parameter 'need'; give each with --param "
                        "NAME=VALUE");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        err = (stk_err){0};
        int rc = (cases[i].json ? stk_spec_set_param_json
                                : stk_spec_set_param)(spec, cases[i].name, cases[i].value, &err);
        const char *got = stk_err_format(&err, message, sizeof message);
        for (uint32_t k = 0; rc == 0 && k < stk_spec_n_params(spec); k++) {
            const stk_param *param = stk_spec_param(spec, k);
            if (strcmp(param->name, cases[i].name) == 0) {
                got = param->value;
            }
        }
        assert_string_equal(got, cases[i].expected);
    }
    assert_int_equal(stk_spec_check_params(spec, &err), 0);
    stk_spec_free(spec);
}

/* --- limits: at each, and one above --- */

static char *many(const char *before, int n, const char *each, const char *after)
{
    STK_BUF_AUTO text = STK_BUF_INIT(64u << 20);
    int code;
    stk_buf_text(&text, before);
    for (int i = 0; i < n; i++) {
        stk_buf_printf(&text, "%s", i == 0 ? "" : ",");
        for (const char *c = each; *c != '\0'; c++) {
            if (*c == '#') {
                stk_buf_printf(&text, "%d", i);
            } else {
                stk_buf_char(&text, *c);
            }
        }
    }
    stk_buf_text(&text, after);
    assert_false(text.failed);
    return message_of(text.data, &code);
}

static void test_limits(void **state)
{
    (void)state;
#define J "{\"stoker\":1,\"name\":\"p\","
    static const struct {
        int limit;
        const char *before, *each, *after, *over;
    } cases[] = {
        {STK_LIMIT_STEPS, J "\"steps\":{", "\"s#\":{\"run\":\"x\"}", "}}",
         "p.yaml:1: 1000001 steps; 1000000 is the limit"},
        {STK_LIMIT_OUTPUTS, J "\"steps\":{\"a\":{\"run\":\"x\",\"outputs\":[", "\"o#\"", "]}}}",
         "p.yaml:1: step 'a': 10001 outputs; 10000 is the limit of a step"},
        {STK_LIMIT_INPUTS, J "\"steps\":{\"a\":{\"run\":\"x\",\"inputs\":{", "\"i#\":0", "}}}}",
         "p.yaml:1: step 'a': more than 100000 inputs; gather some of them in an additional step"},
        {STK_LIMIT_INPUTS - 1,
         J "\"steps\":{\"s\":{\"run\":\"x\",\"outputs\":[\"o\"]},\"a\":{\"run\":\"x\",\"inputs\":{"
           "\"l\":{\"from\":[",
         "\"s.o\"", "]}}}}}",
         "p.yaml:1: step 'a': more than 100000 inputs; gather some of them in an additional step"},
        {STK_LIMIT_ENV, J "\"steps\":{},\"environment\":{", "\"E#\":0", "}}",
         "p.yaml:1: 'environment' has 4097 entries; 4096 is the limit"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *got = many(cases[i].before, cases[i].limit, cases[i].each, cases[i].after);
        assert_string_equal(got, "fine");
        free(got);
        got = many(cases[i].before, cases[i].limit + 1, cases[i].each, cases[i].after);
        assert_string_equal(got, cases[i].over);
        free(got);
    }
    int code;
    char *got = message_of(STEP("retry: {max_retries: 1000}"), &code);
    assert_string_equal(got, "fine");
    free(got);
    got = message_of(STEP("retry: {max_retries: 1001}"), &code);
    assert_string_equal(
        got, "p.yaml:5: step 'b': 'retry.max_retries' is 1001; it must be between 0 and 1000");
    free(got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_document),
        cmocka_unit_test(test_text),     cmocka_unit_test(test_settings),
        cmocka_unit_test(test_devices),  cmocka_unit_test(test_params),
        cmocka_unit_test(test_limits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
