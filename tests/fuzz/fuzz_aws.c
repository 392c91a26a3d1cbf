/* Any bytes as AWS's configuration file, as a server's answer, and as a URL that is signed. */
#include <stdlib.h>
#include <string.h>

#include "away/aws/aws_private.h"
#include "fuzz.h"

static void check_config(const char *text)
{
    for (int i = 0; i < 2; i++) {
        stk_aws_config config = {0};
        int rc = stk_aws_config_parse(&config, text, i == 1);
        fuzz_require(rc == 0 || rc == STK_E_LIMIT || rc == STK_E_NOMEM, "any text is a file");
        for (uint32_t k = 0; k < config.n && k < 100; k++) {
            const struct stk_aws_entry *e = &config.entries[k];
            fuzz_require(strchr(e->section, ' ') != NULL, "a section has a kind and a name");
            fuzz_require(strchr(e->value, '\n') == NULL, "a value is of one line");
            fuzz_require(stk_aws_config_get(&config, e->section, e->key) != NULL, "is found again");
        }
        stk_aws_config_done(&config);
    }
}

static void check_answer(const char *text, size_t size)
{
    static const int statuses[] = {200, 301, 400, 403, 404, 412, 429, 500, 503};
    stk_aws *aws = NULL;
    stk_http_response r = {.head = STK_BUF_INIT(1 << 20), .body = STK_BUF_INIT(1 << 20)};
    (void)setenv("HOME", "/nonexistent", 1);
    (void)setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
    fuzz_require(stk_aws_open("default", &aws, NULL) != 0 || aws != NULL, "opens, or says why not");
    if (aws == NULL) {
        fuzz_require(stk_aws_open(NULL, &aws, NULL) == 0, "without files it opens");
    }
    (void)stk_buf_add(&r.head, text, size / 2);
    (void)stk_buf_add(&r.body, text + size / 2, size - size / 2);
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++) {
        char code[80];
        stk_aws_again again;
        stk_err err = {0};
        r.status = statuses[i];
        int rc = stk_aws_settle(aws, 0, &r, code, &again, &err);
        fuzz_require((rc == 0) == (r.status == 200), "good answers are good, others are not");
        fuzz_require(rc == 0 || err.text[0] != '\0', "what isn't good has a sentence");
        fuzz_require(strlen(code) < sizeof code, "a code has an end");
    }
    const char *at = text;
    char value[64];
    for (int i = 0; i < 100 && stk_aws_xml(&at, "Key", value, sizeof value); i++) {
        fuzz_require(strlen(value) < sizeof value && at <= text + size,
                     "XML stays within the text");
    }
    stk_http_done(&r);
    stk_aws_close(aws);
}

static void check_signature(const char *text)
{
    STK_BUF_AUTO url = STK_BUF_INIT(1 << 20);
    stk_aws_keys keys = {.id = "ID", .secret = "SECRET"};
    stk_aws_signature s;
    stk_buf_printf(&url, "https://h/%s", text);
    for (int i = 0; i < 4 && !url.failed; i++) {
        stk_aws_to_sign q = {.method = "GET",
                             .url = url.data,
                             .payload_sha256 = "UNSIGNED-PAYLOAD",
                             .service = i % 2 == 0 ? "s3" : "batch",
                             .region = "r",
                             .presign_s = i / 2};
        if (stk_aws_make_signature(&q, &keys, &s, NULL) == 0) {
            fuzz_require(strstr(s.authorization.data, "Signature=") != NULL, "it is signed");
        }
        stk_aws_signature_done(&s);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 64 << 10) {
        return 0;
    }
    char *text = malloc(size + 1);
    memcpy(text, data, size);
    text[size] = '\0';
    check_config(text);
    check_answer(text, size);
    check_signature(text);
    free(text);
    return 0;
}
