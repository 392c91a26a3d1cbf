/* Settings from the environment and the files: profile, region, endpoints. */
#include "away/aws/aws.h"

#include <ctype.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "away/aws/aws_private.h"
#include "base/text.h"
#include "sys/clock.h"
#include "sys/file.h"

enum { FILE_MAX = 16 << 20, EARLY_MS = 5 * 60000, AGAIN_MS = 60000, SECTION = 300 };
enum { REREAD_MS = 3000 };

const char *stk_aws_env(const char *name)
{
    const char *value = getenv(name);
    return stk_text_if_any(value);
}

bool stk_aws_is_true(const char *text)
{
    return text != NULL && strcasecmp(text, "true") == 0;
}

/* --- open --- */

static const char *home(void)
{
    const char *path = stk_aws_env("HOME");
    if (path != NULL) {
        return path;
    }
    const struct passwd *me = getpwuid(getuid());
    return me != NULL ? me->pw_dir : "/";
}

static int read_config(stk_aws_config *config, const char *variable, const char *name,
                       bool credentials, stk_err *err)
{
    const char *named = stk_aws_env(variable);
    STK_TEXT_AUTO path = NULL;
    STK_TEXT_AUTO text = NULL;
    size_t n = 0;
    if (named == NULL) {
        path = stk_file_join(home(), name);
    } else if (strncmp(named, "~/", 2) == 0) {
        path = stk_file_join(home(), named + 2);
    } else {
        path = strdup(named);
    }
    STK_TRY(stk_err_if_null(path, err));
    int rc = stk_file_read(path, FILE_MAX, &text, &n, err);
    if (rc == STK_E_NOT_FOUND) {
        return 0;
    }
    if (rc == 0) {
        rc = stk_aws_config_parse(config, text, credentials);
    }
    if (rc == 0 || rc == STK_E_SYS) {
        return rc;
    }
    return stk_err_set(err, rc, "can't read '%s'", path);
}

/* Reads both files into `ret`, which is empty. */
static int read_files(stk_aws_config *ret, stk_err *err)
{
    STK_TRY(read_config(ret, "AWS_CONFIG_FILE", ".aws/config", false, err));
    return read_config(ret, "AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials", true, err);
}

const char *stk_aws_setting(const stk_aws *aws, const char *key)
{
    return stk_aws_config_of_profile(&aws->config, aws->profile, key);
}

static bool has_profile(const stk_aws_config *config, const char *profile)
{
    char section[SECTION];
    (void)snprintf(section, sizeof section, "profile %s", profile);
    return stk_aws_config_get(config, section, "") != NULL;
}

static int read_profile(stk_aws *aws, const char *profile, stk_err *err)
{
    aws->profile = strdup(stk_text_or(profile, "default"));
    STK_TRY(stk_err_if_null(aws->profile, err));
    STK_TRY(read_files(&aws->config, err));
    if (profile != NULL && !has_profile(&aws->config, profile)) { /* the user named it */
        stk_err_set(err, STK_E_ENV,
                    "AWS profile '%.100s' isn't in AWS's configuration or credentials file",
                    profile);
        stk_err_hint(err, "`aws configure list-profiles` lists the profiles; AWS_CONFIG_FILE and "
                          "AWS_SHARED_CREDENTIALS_FILE name other files");
        return STK_E_ENV;
    }
    const char *bundle =
        stk_text_or(stk_aws_env("AWS_CA_BUNDLE"), stk_aws_setting(aws, "ca_bundle"));
    if (bundle != NULL) {
        aws->ca_file = strdup(bundle);
    }
    aws->tls.ca_file = aws->ca_file;
    return 0;
}

int stk_aws_open(const char *profile, stk_aws **ret, stk_err *err)
{
    stk_aws *aws = calloc(1, sizeof *aws);
    STK_TRY(stk_err_if_null(aws, err));
    pthread_mutexattr_t attr;
    (void)pthread_mutexattr_init(&attr);
    (void)pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
    (void)pthread_mutex_init(&aws->lock, &attr);
    (void)pthread_mutexattr_destroy(&attr);
    profile = stk_text_or(
        profile, stk_text_or(stk_aws_env("AWS_PROFILE"), stk_aws_env("AWS_DEFAULT_PROFILE")));
    int rc = read_profile(aws, profile, err);
    if (rc < 0) {
        stk_aws_close(aws);
        return rc;
    }
    *ret = aws;
    return 0;
}

void stk_aws_close(stk_aws *aws)
{
    if (aws != NULL) {
        stk_aws_config_done(&aws->config);
        stk_aws_config_done(&aws->files);
        (void)pthread_mutex_destroy(&aws->lock);
        free(aws->profile);
        free(aws->ca_file);
        explicit_bzero(&aws->keys, sizeof aws->keys);
        free(aws);
    }
}

const stk_http_tls *stk_aws_tls(const stk_aws *aws)
{
    return aws->tls.ca_file == NULL ? NULL : &aws->tls;
}

/* --- keys, kept until they are about to expire --- */

/* Reads the files again, which may have new keys. If they can't be read or lack our profile,
 * because they are just being written, keeps the old content. */
static void read_again(stk_aws *aws)
{
    stk_aws_config found = {0};
    if (read_files(&found, NULL) == 0 && has_profile(&found, aws->profile)) {
        stk_aws_config_done(&aws->files);
        aws->files = found;
    } else {
        stk_aws_config_done(&found);
    }
}

static int renew(stk_aws *aws, int64_t now, stk_err *err)
{
    stk_aws_keys keys = {0};
    stk_err why = {0};
    if (aws->has_keys) {
        read_again(aws);
    }
    int rc = stk_aws_find_keys(aws, &keys, &why);
    if (rc == 0) {
        aws->keys = keys;
        aws->has_keys = true;
        aws->is_refused = false;
        explicit_bzero(&keys, sizeof keys);
    } else if (aws->has_keys && !aws->is_refused && aws->keys.expires_ms > now) {
        aws->retry_ms = now + AGAIN_MS; /* the old keys are still valid */
        rc = 0;
    } else if (err != NULL) {
        *err = why;
    }
    return rc;
}

int stk_aws_get_keys(stk_aws *aws, stk_aws_keys *ret, stk_err *err)
{
    int rc = 0;
    (void)pthread_mutex_lock(&aws->lock);
    int64_t now = stk_clock_wall_ms(&stk_clock_real) + aws->skew_ms;
    bool due = aws->has_keys && aws->keys.expires_ms >= 0 &&
               aws->keys.expires_ms - EARLY_MS <= now && now >= aws->retry_ms;
    bool again = aws->is_refused && now >= aws->reread_ms;
    if (!aws->has_keys || due || again) {
        if (again) {
            aws->reread_ms = now + REREAD_MS;
        }
        rc = renew(aws, now, err);
    }
    if (rc == 0) {
        *ret = aws->keys;
    }
    (void)pthread_mutex_unlock(&aws->lock);
    return rc;
}

/* --- region and endpoints --- */

const char *stk_aws_known_region(const stk_aws *aws)
{
    return stk_text_or(stk_aws_env("AWS_REGION"), stk_text_or(stk_aws_env("AWS_DEFAULT_REGION"),
                                                              stk_aws_setting(aws, "region")));
}

int stk_aws_region(stk_aws *aws, char *ret, size_t size, stk_err *err)
{
    const char *found = stk_aws_known_region(aws);
    int rc = 0;
    if (found == NULL) {
        (void)pthread_mutex_lock(&aws->lock);
        if (aws->region[0] == '\0') {
            rc = stk_aws_instance_region(aws, aws->region, sizeof aws->region, NULL);
        }
        found = aws->region;
        (void)pthread_mutex_unlock(&aws->lock);
    }
    if (rc < 0) {
        stk_err_set(err, STK_E_ENV, "the AWS region is unknown");
        stk_err_hint(err, "set AWS_REGION, or region in ~/.aws/config");
        return STK_E_ENV;
    }
    if (snprintf(ret, size, "%s", found) >= (int)size) {
        return stk_err_set(err, STK_E_ENV, "'%.40s…' isn't a valid AWS region", found);
    }
    return 0;
}

static bool is_set(const stk_aws *aws, const char *variable, const char *key)
{
    return stk_aws_is_true(stk_text_or(stk_aws_env(variable), stk_aws_setting(aws, key)));
}

/* A service's name in variables and files, which may differ from its name in hosts. */
static const char *service_id(const char *service)
{
    if (strcmp(service, "logs") == 0) {
        return "cloudwatch_logs";
    }
    return strcmp(service, "monitoring") == 0 ? "cloudwatch" : service;
}

static const char *custom_endpoint(const stk_aws *aws, const char *service)
{
    char name[96];
    char section[SECTION];
    if (is_set(aws, "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "ignore_configured_endpoint_urls")) {
        return NULL;
    }
    (void)snprintf(name, sizeof name, "AWS_ENDPOINT_URL_%s", service_id(service));
    for (char *c = name; *c != '\0'; c++) {
        *c = (char)toupper((unsigned char)*c);
    }
    const char *url = stk_text_or(stk_aws_env(name), stk_aws_env("AWS_ENDPOINT_URL"));
    const char *services = stk_aws_setting(aws, "services");
    if (url == NULL && services != NULL) {
        (void)snprintf(section, sizeof section, "services %s", services);
        (void)snprintf(name, sizeof name, "%s.endpoint_url", service_id(service));
        url = stk_aws_config_get(&aws->config, section, name);
    }
    return stk_text_or(url, stk_aws_setting(aws, "endpoint_url"));
}

/* The domain of the region's partition, which the region's prefix tells. */
static const char *suffix_of(const char *region, bool dual)
{
    static const struct {
        const char *begins;
        const char *suffix;
        const char *dual;
    } partitions[] = {{"cn-", "amazonaws.com.cn", "api.amazonwebservices.com.cn"},
                      {"us-isob-", "sc2s.sgov.gov", "sc2s.sgov.gov"},
                      {"us-iso-", "c2s.ic.gov", "c2s.ic.gov"},
                      {"", "amazonaws.com", "api.aws"}}; /* aws, aws-us-gov */
    for (size_t i = 0;; i++) {
        if (strncmp(region, partitions[i].begins, strlen(partitions[i].begins)) == 0) {
            return dual ? partitions[i].dual : partitions[i].suffix;
        }
    }
}

int stk_aws_endpoint(stk_aws *aws, const char *service, char *ret, size_t size, bool *ret_custom,
                     stk_err *err)
{
    char region[64];
    const char *url = custom_endpoint(aws, service);
    if (ret_custom != NULL) {
        *ret_custom = url != NULL;
    }
    if (url != NULL) {
        size_t n = strlen(url);
        while (n > 0 && url[n - 1] == '/') {
            n--;
        }
        if (strstr(url, "://") == NULL || snprintf(ret, size, "%.*s", (int)n, url) >= (int)size) {
            return stk_err_set(err, STK_E_ENV, "'%.100s' isn't a valid URL of an endpoint", url);
        }
        return 0;
    }
    STK_TRY(stk_aws_region(aws, region, sizeof region, err));
    bool fips = is_set(aws, "AWS_USE_FIPS_ENDPOINT", "use_fips_endpoint");
    bool dual = is_set(aws, "AWS_USE_DUALSTACK_ENDPOINT", "use_dualstack_endpoint");
    const char *word = "";
    if (dual && strcmp(service, "s3") == 0) { /* S3 has its own form for dual stack */
        word = ".dualstack";
        dual = false;
    }
    (void)snprintf(ret, size, "https://%s%s%s.%s.%s", service, stk_text_when(fips, "-fips"), word,
                   region, suffix_of(region, dual));
    return 0;
}

/* --- signing --- */

static int scope(stk_aws *aws, const char *region, char *buf, size_t size, stk_aws_keys *keys,
                 stk_err *err)
{
    if (region != NULL) {
        (void)snprintf(buf, size, "%s", region);
    } else {
        STK_TRY(stk_aws_region(aws, buf, size, err));
    }
    return stk_aws_get_keys(aws, keys, err);
}

int stk_aws_sign(stk_aws *aws, const char *service, const char *region, const char *payload_sha256,
                 stk_http_request *request, stk_arena *arena, stk_err *err)
{
    stk_aws_keys keys;
    char in[64];
    char sum[STK_DIGEST_HEX + 1];
    STK_TRY(scope(aws, region, in, sizeof in, &keys, err));
    if (payload_sha256 == NULL && request->body != NULL) {
        stk_digest_of(request->body, request->body_len, sum);
    } else {
        stk_digest_of("", 0, sum);
    }
    stk_aws_to_sign q = {.method = request->method,
                         .url = request->url,
                         .payload_sha256 = stk_text_or(payload_sha256, sum),
                         .service = service,
                         .region = in,
                         .time_ms = stk_clock_wall_ms(&stk_clock_real) + aws->skew_ms};
    int rc = stk_aws_sign_with(&q, &keys, request, arena, err);
    explicit_bzero(&keys, sizeof keys);
    return rc;
}

int stk_aws_presign(stk_aws *aws, const char *service, const char *region, const char *method,
                    const char *url, int64_t seconds, stk_buf *ret, stk_err *err)
{
    stk_aws_keys keys;
    stk_aws_signature s = {0};
    char in[64];
    STK_TRY(scope(aws, region, in, sizeof in, &keys, err));
    stk_aws_to_sign q = {.method = method,
                         .url = url,
                         .payload_sha256 = "UNSIGNED-PAYLOAD",
                         .service = service,
                         .region = in,
                         .time_ms = stk_clock_wall_ms(&stk_clock_real) + aws->skew_ms,
                         .presign_s = seconds};
    int rc = stk_aws_make_signature(&q, &keys, &s, err);
    if (rc == 0) {
        stk_buf_printf(ret, "%.*s?%s", (int)strcspn(url, "?"), url, s.query.data);
        rc = stk_buf_check(ret, err);
    }
    stk_aws_signature_done(&s);
    explicit_bzero(&keys, sizeof keys);
    return rc;
}
