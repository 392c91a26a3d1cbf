/* Private to the aws room. */
#ifndef STK_AWS_PRIVATE_H
#define STK_AWS_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "away/aws/aws.h"
#include "base/digest.h"
#include "base/json.h"

#define STK_AWS_FROM_ENV "the environment" /* stk_aws_keys.from */

/* The two files: sections "profile NAME", "services NAME", "sso-session NAME". */
typedef struct stk_aws_config {
    stk_arena *arena;
    struct stk_aws_entry {
        const char *section;
        const char *key; /* "s3.endpoint_url" if nested */
        const char *value;
    } * entries;
    uint32_t n;
    uint32_t cap;
} stk_aws_config;

/* Adds the text of one file. `credentials`: its sections are profile names. Later values win. */
int stk_aws_config_parse(stk_aws_config *config, const char *text, bool credentials);
const char *stk_aws_config_get(const stk_aws_config *config, const char *section, const char *key);
/* A value of section "profile NAME". NULL: absent or empty. */
const char *stk_aws_config_of_profile(const stk_aws_config *config, const char *profile,
                                      const char *key);
void stk_aws_config_done(stk_aws_config *config);

struct stk_aws {
    stk_aws_config config; /* as first read; never changes, so callers may borrow from it */
    char *profile;
    char *ca_file;
    stk_http_tls tls;
    _Atomic int64_t skew_ms; /* AWS's clock less ours */
    /* Protects the members below. Recursive: while we ask STS for keys, the keys that sign the
     * request may turn out to have expired. */
    pthread_mutex_t lock;
    stk_aws_config files; /* as last read again, for keys; empty: never */
    bool has_keys;
    stk_aws_keys keys;
    int64_t retry_ms;          /* next renewal, after one failed while the keys are still valid */
    bool is_refused;           /* AWS refuses the keys: look for new ones */
    int64_t reread_ms;         /* … not before this time */
    _Atomic bool was_accepted; /* AWS has accepted our credentials at least once */
    char region[64];           /* "": not known yet */
};

/* aws_keys.c: tries all sources of credentials in order. */
int stk_aws_find_keys(stk_aws *aws, stk_aws_keys *ret, stk_err *err);
/* aws.c: the environment's region or the profile's, or NULL. */
const char *stk_aws_known_region(const stk_aws *aws);
/* aws_keys_http.c */
int stk_aws_keys_container(stk_aws *aws, stk_aws_keys *ret, stk_err *err);
int stk_aws_keys_instance(stk_aws *aws, stk_aws_keys *ret, stk_err *err);
int stk_aws_instance_region(stk_aws *aws, char *ret, size_t size, stk_err *err);
/* `base`: the keys that assume the role; NULL: the token in token_file does. */
int stk_aws_keys_role(stk_aws *aws, const stk_aws_keys *base, const char *role, const char *session,
                      const char *token_file, const char *external_id, const char *duration,
                      stk_aws_keys *ret, stk_err *err);
/* {"AccessKeyId", "SecretAccessKey", "Token" or "SessionToken", "Expiration"} */
int stk_aws_keys_json(const char *text, size_t n, const char *from, stk_aws_keys *ret,
                      stk_err *err);
int stk_aws_set_keys(stk_aws_keys *keys, const char *id, const char *secret, const char *token,
                     const char *expires, const char *from, stk_err *err);
const char *stk_aws_env(const char *name); /* NULL: unset or empty */
bool stk_aws_is_true(const char *text);

/* aws_sign.c: pure. */
typedef struct stk_aws_to_sign {
    const char *method;
    const char *url;
    const char *const *headers; /* "Name: value", NULL-terminated; NULL: none */
    const char *payload_sha256; /* hex, or UNSIGNED-PAYLOAD */
    const char *service;
    const char *region;
    int64_t time_ms;
    int64_t presign_s; /* above 0: sign the URL, not headers */
} stk_aws_to_sign;
typedef struct stk_aws_signature {
    stk_buf canonical; /* for tests */
    stk_buf query;     /* of a presigned URL, with the signature */
    char date[20];     /* 20150830T123600Z */
    stk_buf authorization;
} stk_aws_signature;
int stk_aws_make_signature(const stk_aws_to_sign *q, const stk_aws_keys *keys,
                           stk_aws_signature *ret, stk_err *err);
void stk_aws_signature_done(stk_aws_signature *s);
int stk_aws_sign_with(const stk_aws_to_sign *q, const stk_aws_keys *keys, stk_http_request *request,
                      stk_arena *arena, stk_err *err);

/* aws_retry.c: sets the error that AWS refuses the credentials from `from`. Returns `as`. */
int stk_aws_say_refused(const char *from, const char *code, int as, stk_err *err);

#endif
