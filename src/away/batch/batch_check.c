/* Can AWS Batch be used as this stack says? Who are we, the queue, what stands behind it, the
 * roles, the log. */
#include <stdio.h>
#include <stdlib.h>
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

static void tell(checker *c, bool is_good, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void tell(checker *c, bool is_good, const char *fmt, ...)
{
    char text[1200];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    c->say(c->arg, is_good, text);
    if (!is_good && c->rc == 0) { /* the first one is the error */
        c->rc = stk_err_set(c->err, STK_E_ENV, "%s", text);
    }
}

/* JSON of an answer in the arena; NULL: `why` says. */
static const stk_json *ask(checker *c, const char *service, const char *path, const char *target,
                           const char *body, char code[80], stk_err *why)
{
    static const stk_json_limits limits = {.bytes = 32 << 20, .nodes = 1000000, .depth = 40};
    const stk_aws_ask request = {.service = service, .path = path, .target = target, .body = body};
    stk_http_response response = {0};
    stk_json *root = stk_arena_alloc(c->arena, sizeof *root);
    int rc = root != NULL ? stk_aws_call(c->aws, c->session, &request, &response, code, why)
                          : stk_err_nomem(why);
    if (rc == 0) {
        rc = stk_json_parse(stk_text_or(response.body.data, ""), response.body.len, service,
                            &limits, c->arena, root, why);
    }
    stk_http_done(&response);
    return rc == 0 ? root : NULL;
}

/* A service that answers in XML; the answer's text in the arena, or NULL. */
static const char *query(checker *c, const char *service, const char *body, char code[80],
                         stk_err *why)
{
    static const char *const headers[] = {"Content-Type: application/x-www-form-urlencoded", NULL};
    char url[600];
    stk_http_response response = {0};
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
    rc = rc < 0 ? rc : stk_aws_sign(c->aws, service, NULL, NULL, &request, c->arena, why);
    if (rc == 0) {
        rc = stk_http_send(&request, &response, why);
        rc = stk_aws_settle(c->aws, rc, &response, code, &again, why);
    }
    const char *text = rc == 0 && response.body.data != NULL
                           ? stk_arena_dupn(c->arena, response.body.data, response.body.len)
                           : NULL;
    stk_http_done(&response);
    return text;
}

static bool check_caller(checker *c)
{
    char arn[512] = "", code[80] = "";
    stk_err why = {0};
    const char *text = query(c, "sts", "Action=GetCallerIdentity&Version=2011-06-15", code, &why);
    if (text == NULL || !stk_aws_xml(&text, "Arn", arn, sizeof arn)) {
        tell(c, false, "AWS doesn't say who we are: %s", why.text);
        return false;
    }
    tell(c, true, "we are %s, in %s", arn, c->region);
    return true;
}

static void put_texts(checker *c, stk_buf *out, const char *key, const char *const *texts,
                      uint32_t n)
{
    (void)c;
    (void)stk_buf_char(out, '{');
    stk_json_put_key(out, key);
    (void)stk_buf_char(out, '[');
    for (uint32_t i = 0; i < n; i++) {
        stk_batch_put_comma(out);
        (void)stk_buf_json(out, texts[i]);
    }
    (void)stk_buf_text(out, "]}");
}

static void check_environments(checker *c, const stk_batch_queue *queue)
{
    char text[1000], code[80] = "";
    stk_err why = {0};
    stk_batch_environment *environments;
    uint32_t n;
    STK_BUF_AUTO body = STK_BUF_INIT(1 << 16);
    put_texts(c, &body, "computeEnvironments", queue->environments, queue->n_environments);
    const stk_json *answer =
        ask(c, "batch", "/v1/describecomputeenvironments", NULL, body.data, code, &why);
    if (answer == NULL) {
        tell(c, true, "its compute environments can't be looked at: %s", why.text);
        return;
    }
    if (stk_batch_environments_read(answer, c->arena, &environments, &n) < 0) {
        tell(c, false, "out of memory");
        return;
    }
    uint32_t n_good = 0;
    for (uint32_t i = 0; i < n; i++) {
        bool good =
            environments[i].state != NULL && strcmp(environments[i].state, "ENABLED") == 0 &&
            (environments[i].status == NULL || strcmp(environments[i].status, "INVALID") != 0);
        n_good += good;
        stk_batch_environment_describe(&environments[i], text, sizeof text);
        c->say(c->arg, good, text);
    }
    if (n_good == 0) {
        tell(c, false, "queue '%s' has no compute environment that takes jobs", queue->name);
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
        tell(c, true,
             "no job queue is named in the stack: each step must name one, @batch(queue=…)");
        return;
    }
    put_texts(c, &body, "jobQueues", &name, 1);
    const stk_json *answer = ask(c, "batch", "/v1/describejobqueues", NULL, body.data, code, &why);
    if (answer == NULL) {
        tell(c, false, "job queue '%s' can't be looked at: %s", name, why.text);
        return;
    }
    if (stk_batch_queue_read(answer, c->arena, &queue) < 0 || !queue.found) {
        tell(c, false, "AWS Batch in %s has no job queue '%s'", c->region, name);
        return;
    }
    bool good = queue.enabled && queue.valid;
    tell(c, good, "job queue '%s' is %s%s%s%s", name, queue.enabled ? "enabled" : "disabled",
         queue.valid ? "" : ", and not valid", queue.reason != NULL ? ": " : "",
         stk_text_or(queue.reason, ""));
    check_environments(c, &queue);
}

static void check_role(checker *c, const char *option)
{
    char code[80] = "";
    stk_err why = {0};
    const char *arn = stk_batch_text(&c->options, option);
    const char *name = arn != NULL ? strstr(arn, ":role/") : NULL;
    if (arn == NULL) {
        if (strcmp(option, "iam_role") == 0) {
            tell(c, true,
                 "no iam_role is named: jobs act as the instances' own role, which must reach the "
                 "store");
        }
        return;
    }
    if (strncmp(arn, "arn:", 4) != 0 || name == NULL) {
        tell(c, false, "%s is '%s'; it must be the role's ARN, arn:aws:iam::ACCOUNT:role/NAME",
             option, arn);
        return;
    }
    const char *slash = strrchr(name, '/');
    STK_BUF_AUTO body = STK_BUF_INIT(2048);
    (void)stk_buf_text(&body, "Action=GetRole&Version=2010-05-08&RoleName=");
    stk_aws_encode(&body, slash + 1, true);
    if (query(c, "iam", body.data, code, &why) != NULL) {
        tell(c, true, "%s %s is there", option, arn);
    } else if (strcmp(code, "NoSuchEntity") == 0) {
        tell(c, false, "%s %s doesn't exist", option, arn);
    } else {
        tell(c, true, "%s %s can't be looked at: %s", option, arn, why.text);
    }
}

static void check_log(checker *c)
{
    char code[80] = "";
    stk_err why = {0};
    const stk_json *list = NULL;
    const stk_json *answer = ask(c, "logs", NULL, "Logs_20140328.DescribeLogGroups",
                                 "{\"logGroupNamePrefix\":\"/aws/batch/job\"}", code, &why);
    if (answer == NULL) {
        tell(c, true,
             "the log group can't be looked at, so what jobs write may not be followed: %s",
             why.text);
        return;
    }
    list = stk_json_get(answer, "logGroups");
    bool there = list != NULL && list->kind == STK_JSON_LIST && list->n > 0;
    tell(c, true, "log group /aws/batch/job is %s", there ? "there" : "made by the first job");
}

int stk_batch_check(const stk_driver_config *config,
                    void (*say)(void *arg, bool is_good, const char *text), void *arg,
                    stk_err *err);
int stk_batch_check(const stk_driver_config *config,
                    void (*say)(void *arg, bool is_good, const char *text), void *arg, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    checker c = {.say = say, .arg = arg, .arena = arena, .err = err};
    int rc = arena != NULL ? 0 : stk_err_nomem(err);
    rc = rc < 0 ? rc : stk_batch_options_read(NULL, config->options, "{}", arena, &c.options, err);
    rc = rc < 0 ? rc : stk_aws_open(NULL, &c.aws, err);
    rc = rc < 0 ? rc : stk_aws_region(c.aws, c.region, sizeof c.region, err);
    rc = rc < 0 ? rc : stk_http_session_open(&c.session, err);
    if (rc == 0 && check_caller(&c)) {
        check_queue(&c);
        check_role(&c, "iam_role");
        check_role(&c, "execution_role");
        check_log(&c);
    }
    stk_http_session_close(c.session);
    stk_aws_close(c.aws);
    STK_TRY(rc);
    return c.rc;
}
