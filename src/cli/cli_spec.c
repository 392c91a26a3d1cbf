/* `stoker spec`: documents alone, without running anything. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/text.h"
#include "cli/cli.h"
#include "model/plan/plan.h"
#include "model/spec/spec.h"
#include "model/spec/spec_result.h"
#include "run/run.h"
#include "sys/file.h"

static int read_document(const char *path, size_t max, char **ret_text, size_t *ret_len,
                         stk_err *err)
{
    return strcmp(path, "-") == 0
               ? stk_file_read_fd(STDIN_FILENO, "standard input", max, ret_text, ret_len, err)
               : stk_file_read(path, max, ret_text, ret_len, err);
}

static int convert(const stk_cli *cli, const char *path, stk_err *err)
{
    STK_TEXT_AUTO text = NULL;
    STK_TEXT_AUTO json = NULL;
    size_t len;
    int rc = read_document(path, STK_LIMIT_SPEC_BYTES, &text, &len, err);
    if (rc == 0) {
        rc = stk_cli_flag(cli, "lines") ? stk_spec_convert_lines(text, len, path, &json, err)
                                        : stk_spec_convert(text, len, path, &json, err);
    }
    if (rc == 0) {
        puts(json);
    }
    return rc;
}

/* Everything that can be said without knowing the machine: the document, and the graph. */
static int check_pipeline(const stk_cli *cli, const char *path, stk_err *err)
{
    STK_TEXT_AUTO text = NULL;
    size_t len;
    stk_spec *spec = NULL;
    stk_plan *plan = NULL;
    int rc = read_document(path, STK_LIMIT_SPEC_BYTES, &text, &len, err);
    rc = rc < 0 ? rc : stk_run_parse_document(text, len, path, &spec, err);
    rc = rc < 0 ? rc : stk_plan_new(spec, NULL, NULL, STK_POLICY_STRICT, &plan, err);
    if (rc == 0) {
        uint32_t n = stk_spec_n_steps(spec);
        if (stk_cli_json(cli)) {
            STK_BUF_AUTO out = STK_BUF_INIT(1u << 16);
            stk_json_open(&out, NULL, '{');
            stk_json_put_text(&out, "kind", "pipeline");
            stk_json_put_text(&out, "name", stk_spec_name(spec));
            stk_json_put_whole(&out, "steps", n);
            stk_json_close(&out, '}');
            puts(stk_text_or(out.data, "{}"));
        } else {
            printf("%s: pipeline '%s', %u step%s, nothing wrong\n", path, stk_spec_name(spec), n,
                   stk_text_plural(n));
        }
    }
    stk_plan_free(plan);
    stk_spec_free(spec);
    return rc;
}

static int check_result(const stk_cli *cli, const char *path, stk_err *err)
{
    STK_TEXT_AUTO text = NULL;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    size_t len;
    stk_result result;
    int rc = arena == NULL ? stk_err_nomem(err) : 0;
    rc = rc < 0 ? rc : read_document(path, STK_LIMIT_RESULT_BYTES, &text, &len, err);
    rc = rc < 0 ? rc : stk_result_parse(text, len, path, arena, &result, err);
    if (rc == 0) {
        const char *status = result.ok ? "ok" : "failed";
        if (stk_cli_json(cli)) {
            STK_BUF_AUTO out = STK_BUF_INIT(1u << 16);
            stk_json_open(&out, NULL, '{');
            stk_json_put_text(&out, "kind", "result");
            stk_json_put_text(&out, "status", status);
            stk_json_put_whole(&out, "outputs", result.n_outputs);
            stk_json_close(&out, '}');
            puts(stk_text_or(out.data, "{}"));
        } else {
            printf("a result with status %s and %u outputs, nothing wrong\n", status,
                   result.n_outputs);
        }
    }
    return rc;
}

static int run_spec(stk_cli *cli)
{
    stk_err err = {0};
    const char *word = stk_cli_arg(cli, 0);
    const char *path = stk_cli_arg(cli, 1);
    bool is_check = word != NULL && strcmp(word, "check") == 0;
    if (word == NULL || (!is_check && strcmp(word, "convert") != 0)) {
        return stk_cli_usage(cli, "what with it? 'check' or 'convert'");
    }
    if (path == NULL || stk_cli_n_args(cli) > 2) {
        return stk_cli_usage(cli, "one document, please; - is standard input");
    }
    int (*act)(const stk_cli *cli, const char *path, stk_err *err) = convert;
    if (is_check) {
        act = stk_cli_flag(cli, "result") ? check_result : check_pipeline;
    }
    int rc = act(cli, path, &err);
    return rc < 0 ? stk_cli_fail(cli, &err) : 0;
}

static const stk_option options_of_spec[] = {
    {"lines", 0, NULL, "convert: {document, lines}, with the line of every key", false},
    {"result", 0, NULL, "check: the document is a task's result.json", false},
    {NULL}};

const stk_command stk_cmd_spec = {
    .name = "spec",
    .summary = "check a pipeline document, or turn its YAML into JSON",
    .usage = "check|convert [options] FILE",
    .text =
        "check reads the document as 'stoker run' would, its graph included, and names the first "
        "thing that is wrong with its line. What depends on the machine is 'stoker plan'.\n\n"
        "convert prints any YAML document as JSON, with the limits of pipeline documents: YAML "
        "1.2, one document, no duplicate keys.",
    .options = options_of_spec,
    .run = run_spec};
