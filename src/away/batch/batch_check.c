/* Checks that the stack can use AWS Batch: our identity, the queue and its environments, the roles,
 * the log. */
#include <stdio.h>
#include <string.h>

#include "away/aws/aws.h"
#include "away/batch/batch_private.h"
#include "base/text.h"

typedef struct checker {
    stk_aws *aws;
    stk_http_session *session;
    stk_batch_options options;
    stk_arena *arena;
    char region[64];
    void (*say)(void *arg, bool is_good, const char *text);
    void *arg;
    stk_err *err;
    int rc;
} checker;

static void tell_result(checker *c, bool is_good, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void tell_result(checker *c, bool is_good, const char *fmt, ...)
{
    char text[1200];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    c->say(c->arg, is_good, text);
    if (!is_good && c->rc == 0) { /* the first failure is the error */
        c->rc = stk_err_set(c->err, STK_E_ENV, "%s", text);
    }
}

/* Makes a call and returns its JSON in the arena; NULL: failed (`why`). */
static const stk_json *ask_json(checker *c, const char *service, const char *path,
                                const char *target, const char *body, char code[80], stk_err *why)
{
    static const stk_json_limits limits = {.bytes = 32 << 20, .nodes = 1000000, .depth = 40};
    const stk_aws_ask request = {.service = service, .path = path, .target = target, .body = body};
    STK_HTTP_RESPONSE_AUTO response = {0};
    stk_json *root = stk_arena_alloc(c->arena, sizeof *root);
    if (stk_err_if_null(root, why) < 0 ||
        stk_aws_call(c->aws, c->session, &request, &response, code, why) < 0 ||
        stk_json_parse(stk_text_or(response.body.data, ""), response.body.len, service, &limits,
                       c->arena, root, why) < 0) {
        return NULL;
    }
    return root;
}

/* Calls a service that answers in XML; returns the text in the arena, or NULL. */
static const char *ask_xml(checker *c, const char *service, const char *body, char code[80],
                           stk_err *why)
{
    static const char *const headers[] = {"Content-Type: application/x-www-form-urlencoded", NULL};
    char url[600];
    STK_HTTP_RESPONSE_AUTO response = {0};
    stk_aws_again again;
    int rc = stk_aws_endpoint(c->aws, service, url, sizeof url - 1, NULL, why);
    (void)strcat(url, "/");
    stk_http_request request = {.method = "POST",
                                .url = url,
                                .headers = headers,
                                .body = body,
                                .body_len = strlen(body),
                                .session = c->session,
                                .tls = stk_aws_tls(c->aws)};
    if (rc < 0 || stk_aws_sign(c->aws, service, NULL, NULL, &request, c->arena, why) < 0) {
        return NULL;
    }
    rc = stk_http_send(&request, &response, why);
    if (stk_aws_settle(c->aws, rc, &response, code, &again, why) < 0) {
        return NULL;
    }
    return stk_buf_keep(&response.body, c->arena);
}

static bool check_caller(checker *c)
{
    char arn[512] = "", code[80] = "";
    stk_err why = {0};
    const char *text = ask_xml(c, "sts", "Action=GetCallerIdentity&Version=2011-06-15", code, &why);
    if (text == NULL || !stk_aws_xml(&text, "Arn", arn, sizeof arn)) {
        tell_result(c, false, "can't get our identity from AWS: %s", why.text);
        return false;
    }
    tell_result(c, true, "our identity is %s, in %s", arn, c->region);
    return true;
}

static void check_environments(checker *c, const stk_batch_queue *queue)
{
    char text[1000], code[80] = "";
    stk_err why = {0};
    stk_batch_environment *environments;
    uint32_t n;
    STK_BUF_AUTO body = STK_BUF_INIT(1 << 16);
    stk_json_open(&body, NULL, '{');
    stk_json_put_texts(&body, "computeEnvironments", queue->environments);
    stk_json_close(&body, '}');
    const stk_json *answer =
        ask_json(c, "batch", "/v1/describecomputeenvironments", NULL, body.data, code, &why);
    if (answer == NULL) {
        tell_result(c, true, "can't read its compute environments: %s", why.text);
        return;
    }
    if (stk_batch_environments_read(answer, c->arena, &environments, &n) < 0) {
        tell_result(c, false, "out of memory");
        return;
    }
    uint32_t n_good = 0;
    for (uint32_t i = 0; i < n; i++) {
        bool good = environments[i].state != NULL && stk_batch_is_good(&environments[i]);
        n_good += good;
        stk_batch_environment_describe(&environments[i], text, sizeof text);
        c->say(c->arg, good, text);
    }
    if (n_good == 0) {
        tell_result(c, false, "queue '%s' has no compute environment that accepts jobs",
                    queue->name);
    }
}

static void check_queue(checker *c)
{
    char code[80] = "";
    stk_err why = {0};
    stk_batch_queue queue;
    const char *name = stk_batch_text(&c->options, "queue");
    STK_BUF_AUTO body = STK_BUF_INIT(4096);
    if (name == NULL) {
        tell_result(c, true, "the stack names no job queue, so each step must: @batch(queue=…)");
        return;
    }
    const char *const names[] = {name, NULL};
    stk_json_open(&body, NULL, '{');
    stk_json_put_texts(&body, "jobQueues", names);
    stk_json_close(&body, '}');
    const stk_json *answer =
        ask_json(c, "batch", "/v1/describejobqueues", NULL, body.data, code, &why);
    if (answer == NULL) {
        tell_result(c, false, "can't read job queue '%s': %s", name, why.text);
        return;
    }
    if (stk_batch_queue_read(answer, c->arena, &queue) < 0 || !queue.found) {
        tell_result(c, false, "AWS Batch in %s has no job queue '%s'", c->region, name);
        return;
    }
    char reason[800] = "";
    if (queue.reason != NULL) {
        (void)snprintf(reason, sizeof reason, ": %s", queue.reason);
    }
    const char *state = queue.enabled ? "enabled" : "disabled";
    tell_result(c, queue.enabled && queue.valid, "job queue '%s' is %s%s%s", name, state,
                stk_text_when(!queue.valid, " and invalid"), reason);
    check_environments(c, &queue);
}

static void check_role(checker *c, const char *option)
{
    char code[80] = "";
    stk_err why = {0};
    const char *arn = stk_batch_text(&c->options, option);
    if (arn == NULL) {
        if (strcmp(option, "iam_role") == 0) {
            tell_result(c, true,
                        "no iam_role is set, so jobs use the role of the instances, which needs "
                        "access to the store");
        }
        return;
    }
    const char *name = strstr(arn, ":role/");
    if (strncmp(arn, "arn:", 4) != 0 || name == NULL) {
        tell_result(c, false,
                    "%s is '%s'; it must be the ARN of a role, arn:aws:iam::ACCOUNT:role/NAME",
                    option, arn);
        return;
    }
    const char *slash = strrchr(name, '/');
    STK_BUF_AUTO body = STK_BUF_INIT(2048);
    (void)stk_buf_text(&body, "Action=GetRole&Version=2010-05-08&RoleName=");
    stk_aws_encode(&body, slash + 1, true);
    if (ask_xml(c, "iam", body.data, code, &why) != NULL) {
        tell_result(c, true, "%s %s is there", option, arn);
    } else if (strcmp(code, "NoSuchEntity") == 0) {
        tell_result(c, false, "%s %s doesn't exist", option, arn);
    } else {
        tell_result(c, true, "can't read %s %s: %s", option, arn, why.text);
    }
}

static void check_log(checker *c)
{
    char code[80] = "";
    stk_err why = {0};
    const stk_json *answer = ask_json(c, "logs", NULL, "Logs_20140328.DescribeLogGroups",
                                      "{\"logGroupNamePrefix\":\"/aws/batch/job\"}", code, &why);
    if (answer == NULL) {
        tell_result(c, true, "can't read the log group, so the output of jobs may be missing: %s",
                    why.text);
        return;
    }
    bool there = stk_json_n_items(stk_json_get(answer, "logGroups")) > 0;
    tell_result(c, true, "log group /aws/batch/job %s",
                there ? "there" : "will be created by the first job");
}

int stk_batch_check(const stk_driver_config *config,
                    void (*say)(void *arg, bool is_good, const char *text), void *arg, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    STK_AWS_AUTO aws = NULL;
    STK_HTTP_SESSION_AUTO session = NULL;
    checker c = {.say = say, .arg = arg, .arena = arena, .err = err};
    STK_TRY(stk_err_if_null(arena, err));
    STK_TRY(stk_batch_options_read(NULL, config->options, "{}", arena, &c.options, err));
    STK_TRY(stk_aws_open(NULL, &aws, err));
    STK_TRY(stk_aws_region(aws, c.region, sizeof c.region, err));
    STK_TRY(stk_http_session_open(&session, err));
    c.aws = aws;
    c.session = session;
    if (check_caller(&c)) {
        check_queue(&c);
        check_role(&c, "iam_role");
        check_role(&c, "execution_role");
        check_log(&c);
    }
    return c.rc;
}
