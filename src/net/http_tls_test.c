/* TLS as a cluster's API server needs it: a private authority, client certificates, a server name
 * that differs from the URL's; and sessions, which reuse connections. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/http_many.h"
#include "net/http_testing.h"
#include "sys/file.h"

static X509 *in_time, *too_early, *too_late; /* the server's certificate */
static char *authority;                      /* PEM texts */
static char *server_key;
static char *client_cert;
static char *client_key;

static struct {
    http_server on;
    SSL_CTX *tls;
    atomic_int n_requests;
    pthread_mutex_t lock; /* protects the members below */
    char asked[4096];     /* the last request */
    char name[256];       /* SNI of the last connection */
} here = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* --- certificates --- */

static char *text_of(X509 *cert, EVP_PKEY *key)
{
    BIO *bio = BIO_new(BIO_s_mem());
    char *data = NULL;
    assert_int_equal(cert != NULL ? PEM_write_bio_X509(bio, cert)
                                  : PEM_write_bio_PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL),
                     1);
    long n = BIO_get_mem_data(bio, &data);
    char *text = strndup(data, (size_t)n);
    BIO_free(bio);
    return text;
}

enum { DAY_S = 86400 };
static long from_s = -DAY_S, to_s = DAY_S; /* validity of the next certificate */

static X509 *make(EVP_PKEY *key, const char *name, const char *alternative, X509 *issuer,
                  EVP_PKEY *issuer_key)
{
    X509 *cert = X509_new();
    X509_set_version(cert, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
    X509_gmtime_adj(X509_getm_notBefore(cert), from_s);
    X509_gmtime_adj(X509_getm_notAfter(cert), to_s);
    X509_set_pubkey(cert, key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(cert), "CN", MBSTRING_ASC,
                               (const unsigned char *)name, -1, -1, 0);
    X509_set_issuer_name(cert, X509_get_subject_name(issuer != NULL ? issuer : cert));
    const struct {
        int nid;
        const char *value;
    } more[] = {{NID_basic_constraints, issuer == NULL ? "critical,CA:TRUE" : "CA:FALSE"},
                {NID_subject_alt_name, alternative}};
    for (size_t i = 0; i < 2 && more[i].value != NULL; i++) {
        X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, NULL, more[i].nid, more[i].value);
        assert_non_null(e);
        X509_add_ext(cert, e, -1);
        X509_EXTENSION_free(e);
    }
    assert_true(X509_sign(cert, issuer_key != NULL ? issuer_key : key, EVP_sha256()) > 0);
    return cert;
}

static void make_all(void)
{
    EVP_PKEY *key[3];
    for (int i = 0; i < 3; i++) {
        key[i] = EVP_EC_gen("P-256");
        assert_non_null(key[i]);
    }
    X509 *ca = make(key[0], "authority", NULL, NULL, NULL);
    X509 *server = make(key[1], "server", "DNS:cluster.internal,IP:127.0.0.1", ca, key[0]);
    X509 *client = make(key[2], "client", NULL, ca, key[0]);
    from_s = 3600;
    too_early = make(key[1], "server", "IP:127.0.0.1", ca, key[0]);
    from_s = -DAY_S;
    to_s = -3600;
    too_late = make(key[1], "server", "IP:127.0.0.1", ca, key[0]);
    authority = text_of(ca, NULL);
    server_key = text_of(NULL, key[1]);
    client_cert = text_of(client, NULL);
    client_key = text_of(NULL, key[2]);
    here.tls = SSL_CTX_new(TLS_server_method());
    assert_int_equal(SSL_CTX_use_certificate(here.tls, server), 1);
    assert_int_equal(SSL_CTX_use_PrivateKey(here.tls, key[1]), 1);
    assert_int_equal(X509_STORE_add_cert(SSL_CTX_get_cert_store(here.tls), ca), 1);
    SSL_CTX_set_verify(here.tls, SSL_VERIFY_PEER, NULL); /* client certificate: optional */
    (void)SSL_CTX_set_session_id_context(here.tls, (const unsigned char *)"t", 1);
    X509_free(ca);
    in_time = server;
    X509_free(client);
    for (int i = 0; i < 3; i++) {
        EVP_PKEY_free(key[i]);
    }
}

/* --- the server: answers with the name in the client's certificate --- */

/* `there` is a text member of `here`. */
static void keep(char *there, size_t size, const char *text)
{
    pthread_mutex_lock(&here.lock);
    (void)snprintf(there, size, "%s", text);
    pthread_mutex_unlock(&here.lock);
}

static const char *kept(const char *there)
{
    static char text[sizeof here.asked];
    pthread_mutex_lock(&here.lock);
    (void)snprintf(text, sizeof text, "%s", there);
    pthread_mutex_unlock(&here.lock);
    return text;
}

static void *converse(void *arg)
{
    int fd = (int)(intptr_t)arg;
    SSL *ssl = SSL_new(here.tls);
    char asked[sizeof here.asked];
    int n = 0;
    int got;
    SSL_set_fd(ssl, fd);
    if (SSL_accept(ssl) == 1) {
        const char *name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
        keep(here.name, sizeof here.name, name != NULL ? name : "");
        X509 *client = SSL_get0_peer_certificate(ssl);
        const char *who = client == NULL ? "nobody" : "client";
        while ((got = SSL_read(ssl, asked + n, (int)sizeof asked - 1 - n)) > 0) {
            n += got;
            asked[n] = '\0';
            if (strstr(asked, "\r\n\r\n") != NULL) {
                char answer[128];
                int len = snprintf(answer, sizeof answer,
                                   "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n%s", who);
                keep(here.asked, sizeof here.asked, asked);
                atomic_fetch_add(&here.n_requests, 1);
                (void)SSL_write(ssl, answer, len);
                n = 0;
            }
        }
    }
    SSL_free(ssl);
    close(fd);
    return NULL;
}

static int start_server(void **state)
{
    (void)state;
    make_all();
    return http_server_start(&here.on, converse);
}

static int stop_server(void **state)
{
    (void)state;
    int rc = http_server_stop(&here.on);
    char *texts[] = {authority, server_key, client_cert, client_key};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        free(texts[i]);
    }
    authority = server_key = client_cert = client_key = NULL;
    return rc;
}

static int forget(void **state)
{
    (void)state;
    here.on.n_connections = here.n_requests = 0;
    keep(here.name, sizeof here.name, "");
    keep(here.asked, sizeof here.asked, "");
    return 0;
}

static const char *url_at(const char *host)
{
    static char url[128];
    (void)snprintf(url, sizeof url, "https://%s:%d/api", host, here.on.port);
    return url;
}

/* Returns the body, or the error's text. */
static const char *ask(const char *url, const stk_http_tls *tls, stk_http_session *session)
{
    static char text[900];
    stk_http_response r = {0};
    stk_err err = {0};
    stk_http_request q = {.method = "GET", .url = url, .tls = tls, .session = session};
    int rc = stk_http_send(&q, &r, &err);
    (void)snprintf(text, sizeof text, "%s%s", rc < 0 && r.fatal ? "fatal " : "",
                   rc < 0 ? err.text : r.body.data);
    stk_http_done(&r);
    return text;
}

static void test_who_is_trusted(void **state)
{
    (void)state;
    char path[] = "/tmp/stk-ca-XXXXXX";
    int fd = mkstemp(path);
    assert_int_equal(stk_file_write_all(fd, authority, strlen(authority)), 0);
    close(fd);
    stk_http_tls by_file = {.ca_file = path};
    stk_http_tls by_text = {.ca_data = authority};
    stk_http_tls both = {.ca_data = authority, .ca_file = "/nowhere"};
    stk_http_tls any = {.insecure = true};
    stk_http_tls wrong = {.ca_data = client_cert};
    assert_string_equal(ask(url_at("127.0.0.1"), &by_file, NULL), "nobody");
    assert_string_equal(ask(url_at("127.0.0.1"), &by_text, NULL), "nobody");
    assert_string_equal(ask(url_at("127.0.0.1"), &both, NULL), "nobody");
    assert_string_equal(ask(url_at("127.0.0.1"), &any, NULL), "nobody");
    assert_int_equal(here.n_requests, 4);
    assert_memory_equal(ask(url_at("127.0.0.1"), NULL, NULL), "fatal ", 6);
    assert_memory_equal(ask(url_at("127.0.0.1"), &wrong, NULL), "fatal ", 6);
    assert_memory_equal(ask(url_at("localhost"), &by_text, NULL), "fatal ", 6); /* wrong name */
    assert_int_equal(here.n_requests, 4);
    (void)unlink(path);
}

/* A client with a wrong clock sees such certificates. */
static void test_certificate_of_another_time(void **state)
{
    (void)state;
    stk_http_tls tls = {.ca_data = authority};
    const char *const words[] = {"not yet valid", "expired"};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(SSL_CTX_use_certificate(here.tls, i == 0 ? too_early : too_late), 1);
        const char *text = ask(url_at("127.0.0.1"), &tls, NULL);
        assert_memory_equal(text, "fatal ", 6);
        assert_non_null(strstr(text, words[i]));
        assert_non_null(strstr(text, "this machine's clock says 20"));
    }
    assert_int_equal(SSL_CTX_use_certificate(here.tls, in_time), 1);
    assert_string_equal(ask(url_at("127.0.0.1"), &tls, NULL), "nobody");
}

static void test_client_certificate(void **state)
{
    (void)state;
    stk_http_tls tls = {.ca_data = authority, .cert_data = client_cert, .key_data = client_key};
    assert_string_equal(ask(url_at("127.0.0.1"), &tls, NULL), "client");
    tls.key_data = server_key; /* another certificate's key */
    assert_memory_equal(ask(url_at("127.0.0.1"), &tls, NULL), "fatal ", 6);
}

static void test_server_name(void **state)
{
    (void)state;
    char host[64];
    stk_http_tls tls = {.ca_data = authority, .server_name = "cluster.internal"};
    assert_string_equal(ask(url_at("localhost"), &tls, NULL), "nobody");
    assert_string_equal(kept(here.name), "cluster.internal");
    (void)snprintf(host, sizeof host, "\r\nHost: localhost:%d\r\n", here.on.port);
    assert_non_null(strstr(kept(here.asked), host));
    tls.server_name = "other.internal";
    assert_memory_equal(ask(url_at("localhost"), &tls, NULL), "fatal ", 6);
}

/* Equal certificate texts must get the same file in memory, or no connection would be reused. */
static void test_session_keeps_connections(void **state)
{
    (void)state;
    stk_http_session *s = NULL;
    char *copy = strdup(authority);
    stk_http_tls tls = {.ca_data = authority, .cert_data = client_cert, .key_data = client_key};
    assert_int_equal(stk_http_session_open(&s, NULL), 0);
    for (int i = 0; i < 5; i++) {
        assert_string_equal(ask(url_at("127.0.0.1"), &tls, s), "client");
        tls.ca_data = i % 2 == 0 ? copy : authority;
    }
    assert_int_equal(here.n_requests, 5);
    assert_int_equal(here.on.n_connections, 1);
    stk_http_tls other = {.ca_data = authority}; /* without our certificate: another connection */
    assert_string_equal(ask(url_at("127.0.0.1"), &other, s), "nobody");
    assert_int_equal(here.on.n_connections, 2);
    stk_http_session_close(s);
    free(copy);
}

static void note(void *arg, int rc, stk_http_response *response, const stk_err *err)
{
    int *n_good = arg;
    *n_good += rc == 0 && response->status == 200 && strcmp(response->body.data, "client") == 0;
    if (rc < 0) {
        print_message("%s\n", err->text);
    }
}

static void test_many(void **state)
{
    (void)state;
    int n_good = 0;
    stk_err err = {0};
    stk_http_many *m = NULL;
    stk_http_tls tls = {.ca_data = authority, .cert_data = client_cert, .key_data = client_key};
    assert_int_equal(stk_http_many_open(1, &m, &err), 0);
    for (int i = 0; i < 10; i++) {
        stk_http_call c = {.request = {.method = "GET", .url = url_at("127.0.0.1"), .tls = &tls},
                           .done = note,
                           .done_arg = &n_good};
        assert_int_equal(stk_http_many_begin(m, &c, NULL, &err), 0);
    }
    memset(&tls, 0, sizeof tls);
    while (stk_http_many_n(m) > 0) {
        assert_int_equal(stk_http_many_turn(m, -1, 1000, &err), 0);
    }
    assert_int_equal(n_good, 10);
    assert_int_equal(here.on.n_connections, 1);
    stk_http_many_close(m);
}

int main(void)
{
    (void)signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_who_is_trusted, forget),
        cmocka_unit_test_setup(test_certificate_of_another_time, forget),
        cmocka_unit_test_setup(test_client_certificate, forget),
        cmocka_unit_test_setup(test_server_name, forget),
        cmocka_unit_test_setup(test_session_keeps_connections, forget),
        cmocka_unit_test_setup(test_many, forget),
    };
    return cmocka_run_group_tests(tests, start_server, stop_server);
}
