/* `stoker spec`: checks or converts documents without running anything. */
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
    if (strcmp(path, "-") == 0) {
        return stk_file_read_fd(STDIN_FILENO, "standard input", max, ret_text, ret_len, err);
    }
    return stk_file_read(path, max, ret_text, ret_len, err);
}

static int convert(const stk_cli *cli, const char *path, stk_buf *out, stk_err *err)
{
    STK_TEXT_AUTO text = NULL;
    STK_TEXT_AUTO json = NULL;
    size_t len;
    STK_TRY(read_document(path, STK_LIMIT_SPEC_BYTES, &text, &len, err));
    if (stk_cli_flag(cli, "lines")) {
        STK_TRY(stk_spec_convert_lines(text, len, path, &json, err));
    } else {
        STK_TRY(stk_spec_convert(text, len, path, &json, err));
    }
    return stk_buf_text(out, json);
}

/* Checks whatever doesn't depend on the machine: the document and its graph. */
static int check_pipeline(const stk_cli *cli, const char *path, stk_buf *out, stk_err *err)
{
    STK_TEXT_AUTO text = NULL;
    STK_SPEC_AUTO spec = NULL;
    STK_PLAN_AUTO plan = NULL;
    size_t len;
    STK_TRY(read_document(path, STK_LIMIT_SPEC_BYTES, &text, &len, err));
    STK_TRY(stk_run_parse_document(text, len, path, &spec, err));
    STK_TRY(stk_plan_new(spec, NULL, NULL, STK_POLICY_STRICT, &plan, err));
    uint32_t n = stk_spec_n_steps(spec);
    if (stk_cli_json(cli)) {
        stk_json_open(out, NULL, '{');
        stk_json_put_text(out, "kind", "pipeline");
        stk_json_put_text(out, "name", stk_spec_name(spec));
        stk_json_put_whole(out, "steps", n);
        stk_json_close(out, '}');
    } else {
        stk_buf_printf(out, "%s: pipeline '%s', %u step%s, nothing wrong", path,
                       stk_spec_name(spec), n, stk_text_plural(n));
    }
    return 0;
}

static int check_result(const stk_cli *cli, const char *path, stk_buf *out, stk_err *err)
{
    STK_TEXT_AUTO text = NULL;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    size_t len;
    stk_result result;
    STK_TRY(stk_err_if_null(arena, err));
    STK_TRY(read_document(path, STK_LIMIT_RESULT_BYTES, &text, &len, err));
    STK_TRY(stk_result_parse(text, len, path, arena, &result, err));
    const char *status = result.ok ? "ok" : "failed";
    if (stk_cli_json(cli)) {
        stk_json_open(out, NULL, '{');
        stk_json_put_text(out, "kind", "result");
        stk_json_put_text(out, "status", status);
        stk_json_put_whole(out, "outputs", result.n_outputs);
        stk_json_close(out, '}');
    } else {
        stk_buf_printf(out, "a result with status %s and %u outputs, nothing wrong", status,
                       result.n_outputs);
    }
    return 0;
}

static int run_spec(const stk_cli *cli, stk_buf *out, stk_err *err)
{
    const char *word = stk_cli_arg(cli, 0), *path = stk_cli_arg(cli, 1);
    bool is_check = word != NULL && strcmp(word, "check") == 0;
    if (word == NULL || (!is_check && strcmp(word, "convert") != 0)) {
        return stk_cli_usage(cli, err, "an action is missing: 'check' or 'convert'");
    }
    if (path == NULL || stk_cli_n_args(cli) > 2) {
        return stk_cli_usage(cli, err, "exactly one document is needed; - is standard input");
    }
    if (!is_check) {
        return convert(cli, path, out, err);
    }
    if (stk_cli_flag(cli, "result")) {
        return check_result(cli, path, out, err);
    }
    return check_pipeline(cli, path, out, err);
}

static const stk_option options_of_spec[] = {
    {"lines", 0, NULL, "convert: {document, lines}, with the line of every key"},
    {"result", 0, NULL, "check: the document is a task's result.json"},
    {NULL}};

const stk_command stk_cmd_spec = {
    .name = "spec",
    .summary = "check a pipeline document, or turn its YAML into JSON",
    .usage = "check|convert [options] FILE",
    .text = "check reads the document as 'stoker run' would, its graph included, and names the "
            "first error with its line. 'stoker plan' checks what depends on the machine.\n\n"
            "convert prints any YAML document as JSON, with the limits of pipeline documents: YAML "
            "1.2, one document, no duplicate keys.",
    .options = options_of_spec,
    .max_args = -1,
    .run = run_spec};
