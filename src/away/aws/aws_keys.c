/* The sources of credentials, in the order of AWS's own tools. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "away/aws/aws_private.h"
#include "base/text.h"

enum { CHAIN_MAX = 5, OUTPUT_MAX = 64 << 10 };

/* Parses 2026-11-22T01:02:03Z; -1: not a time. */
static int64_t parse_time(const char *text)
{
    struct tm tm = {0};
    char rest[40] = "";
    if (sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2d%39s", &tm.tm_year, &tm.tm_mon, &tm.tm_mday,
               &tm.tm_hour, &tm.tm_min, &tm.tm_sec, rest) < 6) {
        return -1;
    }
    tm.tm_year -= 1900;
    tm.tm_mon -= 1;
    int64_t seconds = timegm(&tm);
    const char *zone = rest;
    if (*zone == '.') {
        zone += 1 + strspn(zone + 1, "0123456789");
    }
    int hours = 0;
    int minutes = 0;
    if (strchr("+-", *zone) != NULL) {
        (void)sscanf(zone + (*zone != '\0'), "%2d:%2d", &hours, &minutes);
    }
    int64_t ahead = hours * 3600 + minutes * 60;
    return (*zone == '-' ? seconds + ahead : seconds - ahead) * 1000;
}

int stk_aws_set_keys(stk_aws_keys *keys, const char *id, const char *secret, const char *token,
                     const char *expires, const char *from, stk_err *err)
{
    if (id == NULL || secret == NULL || strlen(id) >= sizeof keys->id ||
        strlen(secret) >= sizeof keys->secret ||
        (token != NULL && strlen(token) >= sizeof keys->token)) {
        return stk_err_set(err, STK_E_ENV, "AWS credentials from %s are incomplete, or too long",
                           from);
    }
    *keys = (stk_aws_keys){.expires_ms = parse_time(stk_text_or(expires, ""))};
    (void)snprintf(keys->from, sizeof keys->from, "%s", from);
    (void)snprintf(keys->id, sizeof keys->id, "%s", id);
    (void)snprintf(keys->secret, sizeof keys->secret, "%s", secret);
    (void)snprintf(keys->token, sizeof keys->token, "%s", stk_text_or(token, ""));
    return 0;
}

int stk_aws_keys_json(const char *text, size_t n, const char *from, stk_aws_keys *ret, stk_err *err)
{
    static const stk_json_limits limits = {.bytes = OUTPUT_MAX, .nodes = 1000, .depth = 8};
    STK_ARENA_AUTO arena = stk_arena_new(1 << 20);
    stk_json root;
    STK_TRY(stk_err_if_null(arena, err));
    if (stk_json_parse(stk_text_or(text, ""), n, from, &limits, arena, &root, NULL) < 0) {
        return stk_err_set(err, STK_E_ENV, "AWS credentials from %s are invalid JSON", from);
    }
    const char *token =
        stk_text_or(stk_json_get_text(&root, "Token"), stk_json_get_text(&root, "SessionToken"));
    const char *code = stk_json_get_text(&root, "Code");
    if (code != NULL && strcmp(code, "Success") != 0) {
        return stk_err_set(err, STK_E_ENV, "no AWS credentials from %s: %.100s", from, code);
    }
    return stk_aws_set_keys(ret, stk_json_get_text(&root, "AccessKeyId"),
                            stk_json_get_text(&root, "SecretAccessKey"), token,
                            stk_json_get_text(&root, "Expiration"), from, err);
}

/* --- a profile --- */

static const char *of_profile(const stk_aws *aws, const char *profile, const char *key)
{
    const stk_aws_config *files = aws->files.arena != NULL ? &aws->files : &aws->config;
    return stk_aws_config_of_profile(files, profile, key);
}

/* Reads credentials from the output of a program of the user's. */
static int from_process(const char *command, stk_aws_keys *ret, stk_err *err)
{
    STK_BUF_AUTO out = STK_BUF_INIT(OUTPUT_MAX);
    char part[4096];
    size_t n;
    FILE *pipe = popen(command, "re");
    if (pipe == NULL) {
        return stk_err_sys(err, STK_E_SYS, errno, "can't start the profile's credential_process");
    }
    while ((n = fread(part, 1, sizeof part, pipe)) > 0) {
        (void)stk_buf_add(&out, part, n);
    }
    int status = pclose(pipe); /* -1: already reaped elsewhere; its output is good */
    explicit_bzero(part, sizeof part);
    if (status > 0) {
        return stk_err_set(err, STK_E_ENV, "the profile's credential_process failed (status %d)",
                           status >> 8);
    }
    int rc = stk_aws_keys_json(out.data, out.len, "the profile's credential_process", ret, err);
    if (out.data != NULL) {
        explicit_bzero(out.data, out.len);
    }
    return rc;
}

static int from_environment(stk_aws_keys *ret, stk_err *err)
{
    return stk_aws_set_keys(ret, stk_aws_env("AWS_ACCESS_KEY_ID"),
                            stk_aws_env("AWS_SECRET_ACCESS_KEY"), stk_aws_env("AWS_SESSION_TOKEN"),
                            stk_aws_env("AWS_CREDENTIAL_EXPIRATION"), STK_AWS_FROM_ENV, err);
}

/* The profile's own keys. *ret_found: whether it has any. */
static int own_keys(const stk_aws *aws, const char *profile, bool *ret_found, stk_aws_keys *ret,
                    stk_err *err)
{
    char from[200];
    const char *id = of_profile(aws, profile, "aws_access_key_id");
    const char *process = of_profile(aws, profile, "credential_process");
    *ret_found = id != NULL || process != NULL;
    (void)snprintf(from, sizeof from, "profile '%.100s'", profile);
    if (id != NULL) {
        return stk_aws_set_keys(ret, id, of_profile(aws, profile, "aws_secret_access_key"),
                                of_profile(aws, profile, "aws_session_token"), NULL, from, err);
    }
    if (process == NULL) {
        return 0;
    }
    return from_process(process, ret, err);
}

static int base_of_role(stk_aws *aws, const char *profile, int depth, stk_aws_keys *ret,
                        stk_err *err);

/* Assumes the profile's role. */
static int assume(stk_aws *aws, const char *profile, const char *role, int depth, stk_aws_keys *ret,
                  stk_err *err)
{
    stk_aws_keys base = {0};
    const char *token_file = of_profile(aws, profile, "web_identity_token_file");
    const char *session = of_profile(aws, profile, "role_session_name");
    if (of_profile(aws, profile, "mfa_serial") != NULL) {
        return stk_err_set(err, STK_E_ENV, "AWS profile '%.100s' needs a code of an MFA device",
                           profile);
    }
    const stk_aws_keys *by = NULL;
    int rc = 0;
    if (token_file == NULL) {
        rc = base_of_role(aws, profile, depth, &base, err);
        by = &base;
    }
    if (rc == 0) {
        rc = stk_aws_keys_role(aws, by, role, session, token_file,
                               of_profile(aws, profile, "external_id"),
                               of_profile(aws, profile, "duration_seconds"), ret, err);
    }
    explicit_bzero(&base, sizeof base);
    return rc;
}

static int of_source(stk_aws *aws, const char *source, stk_aws_keys *ret, stk_err *err)
{
    if (strcmp(source, "Environment") == 0) {
        return from_environment(ret, err);
    }
    if (strcmp(source, "EcsContainer") == 0) {
        return stk_aws_keys_container(aws, ret, err);
    }
    return stk_aws_keys_instance(aws, ret, err);
}

static int base_of_role(stk_aws *aws, const char *profile, int depth, stk_aws_keys *ret,
                        stk_err *err)
{
    bool found = false;
    const char *from = of_profile(aws, profile, "source_profile");
    const char *source = of_profile(aws, profile, "credential_source");
    if (from == NULL && source != NULL) {
        return of_source(aws, source, ret, err);
    }
    from = stk_text_or(from, profile);
    const char *role = of_profile(aws, from, "role_arn");
    if (role != NULL && strcmp(from, profile) != 0 && depth < CHAIN_MAX) {
        return assume(aws, from, role, depth + 1, ret, err);
    }
    int rc = own_keys(aws, from, &found, ret, err);
    if (rc < 0 || found) {
        return rc;
    }
    return stk_err_set(err, STK_E_ENV,
                       "AWS profile '%.100s' assumes a role with the credentials of '%.100s', but "
                       "that profile has none",
                       profile, from);
}

static int find_own(stk_aws *aws, stk_aws_keys *ret, stk_err *err)
{
    bool found = false;
    if (stk_aws_env("AWS_ACCESS_KEY_ID") != NULL) {
        return from_environment(ret, err);
    }
    const char *role = of_profile(aws, aws->profile, "role_arn");
    if (role != NULL) {
        return assume(aws, aws->profile, role, 0, ret, err);
    }
    const char *token_file = stk_aws_env("AWS_WEB_IDENTITY_TOKEN_FILE");
    role = stk_aws_env("AWS_ROLE_ARN");
    if (token_file != NULL && role != NULL) {
        return stk_aws_keys_role(aws, NULL, role, stk_aws_env("AWS_ROLE_SESSION_NAME"), token_file,
                                 NULL, NULL, ret, err);
    }
    int rc = own_keys(aws, aws->profile, &found, ret, err);
    if (rc < 0 || found) {
        return rc;
    }
    if (of_profile(aws, aws->profile, "sso_session") != NULL ||
        of_profile(aws, aws->profile, "sso_start_url") != NULL) {
        stk_err_set(err, STK_E_ENV, "AWS profile '%.100s' signs in with a browser (SSO)",
                    aws->profile);
        stk_err_hint(err, "run: eval \"$(aws configure export-credentials --format env)\", or set "
                          "the profile's credential_process to that command");
        return STK_E_ENV;
    }
    if (stk_aws_env("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") != NULL ||
        stk_aws_env("AWS_CONTAINER_CREDENTIALS_FULL_URI") != NULL) {
        return stk_aws_keys_container(aws, ret, err);
    }
    stk_err why = {0};
    rc = stk_aws_keys_instance(aws, ret, &why);
    if (rc < 0) {
        stk_err_set(err, STK_E_ENV,
                    "no AWS credentials found in the environment, in profile '%.60s', of the "
                    "container or of this machine (%.300s)",
                    aws->profile, why.text);
        stk_err_hint(err, "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or run "
                          "`aws configure`");
    }
    return rc;
}

int stk_aws_find_keys(stk_aws *aws, stk_aws_keys *ret, stk_err *err)
{
    stk_aws_keys base = {0};
    const char *role = stk_aws_env("STOKER_AWS_ROLE");
    if (role == NULL) {
        return find_own(aws, ret, err);
    }
    int rc = find_own(aws, &base, err);
    if (rc == 0) {
        rc = stk_aws_keys_role(aws, &base, role, NULL, NULL, NULL, NULL, ret, err);
    }
    explicit_bzero(&base, sizeof base);
    return rc;
}
