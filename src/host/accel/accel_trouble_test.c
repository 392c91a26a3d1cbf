/* Xids and their policy, bursts, the kernel log, quarantine; and the fake provider, which reports
 * Xids too. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/testing.h"
#include "host/accel/accel.h"
#include "sys/file.h"

static char dir[] = "/tmp/stoker-trouble-XXXXXX";
static char provider[PATH_MAX];

static int set_up(void **state)
{
    (void)state;
    strcpy(strrchr(dir, '-'), "-XXXXXX");
    assert_non_null(mkdtemp(dir));
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/leases", dir);
    setenv("STOKER_LEASE_DIR", path, 1);
    snprintf(path, sizeof path, "%s/root", dir);
    setenv("STOKER_SYSROOT", path, 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
    snprintf(provider, sizeof provider, "fake:%s/devices.json", dir);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    unsetenv("STOKER_LEASE_DIR");
    unsetenv("STOKER_SYSROOT");
    return stk_file_remove_tree(dir, NULL);
}

static void describe(const char *json)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/devices.json", dir);
    assert_int_equal(stk_file_write_atomic(path, json, strlen(json), 0644, NULL), 0);
}

static stk_accel *open_fake(const char *json)
{
    stk_accel *accel = NULL;
    stk_err err = {0};
    describe(json);
    if (stk_accel_open(provider, &accel, &err) != 0) {
        fail_msg("%s", err.text);
    }
    return accel;
}

static void test_policy(void **state)
{
    (void)state;
    const struct {
        int32_t xid;
        const char *overrides;
        stk_xid_action action;
    } cases[] = {
        {13, NULL, STK_XID_RESTART},
        {43, NULL, STK_XID_RESTART},
        {48, NULL, STK_XID_QUARANTINE},
        {63, NULL, STK_XID_IGNORE},
        {79, NULL, STK_XID_NODE},
        {94, NULL, STK_XID_RESTART},
        {95, "", STK_XID_QUARANTINE},
        {109, NULL, STK_XID_QUARANTINE},
        {109, "94=ignore,109=restart", STK_XID_RESTART},
        {94, "94=ignore, 109=restart", STK_XID_IGNORE},
        {94, "94=quarantine,94=node", STK_XID_NODE},
        {94, "94=nonsense", STK_XID_RESTART},
        {94, "9=ignore", STK_XID_RESTART},
        {9999, NULL, STK_XID_IGNORE},
        {9999, "9999=node", STK_XID_NODE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (stk_xid_policy(cases[i].xid, cases[i].overrides) != cases[i].action) {
            fail_msg("case %zu: Xid %d under '%s'", i, cases[i].xid, cases[i].overrides);
        }
    }
    assert_string_equal(stk_xid_text(79), "GPU has fallen off the bus");
    assert_null(stk_xid_text(9999));
    int n_known = 0;
    for (int32_t x = 0; x < 1000; x++) {
        n_known += stk_xid_text(x) != NULL;
    }
    assert_int_equal(n_known, 109);
}

/* Each field of the state is read under its own name; no byte of the struct stays unknown. */
static void test_fake_state(void **state)
{
    (void)state;
    char json[8192] = "[{";
    int64_t n = 0;
#define X(name, type)                                                                              \
    snprintf(json + strlen(json), sizeof json - strlen(json), "\"%s\": %lld,", #name,              \
             (long long)(1000 + n++));
#include "tbl/device_state.def"
#undef X
    strcat(json, "\"cc\": \"9.0\"}]");
    stk_accel *accel = open_fake(json);
    stk_device_state s;
    assert_int_equal(stk_accel_state(accel, 0, &s, NULL), 0);
    assert_int_equal(s.busy_percent, 1000);
    assert_int_equal(s.memory_busy_percent, 1001);
    assert_int_equal(s.compute_mode, 1000 + n - 1);
#define X(name, type) assert_true(s.name >= 1000);
#include "tbl/device_state.def"
#undef X
    assert_int_equal(stk_accel_device(accel, 0)->cc_major, 9);
    assert_int_equal(stk_accel_device(accel, 0)->cc_minor, 0);
    describe("[{}]");
    assert_int_equal(stk_accel_state(accel, 0, &s, NULL), 0);
#define X(name, type) assert_true(s.name == -1);
#include "tbl/device_state.def"
#undef X
    stk_err err = {0};
    assert_int_equal(stk_accel_state(accel, 1, &s, &err), STK_E_NOT_FOUND);
    stk_accel_close(accel);
}

static void test_fake_changes(void **state)
{
    (void)state;
    stk_accel *accel = open_fake(
        "{\"driver\": \"580.65.06\", \"cuda_version\": 13000, \"devices\": ["
        " {\"uuid\": \"GPU-a\", \"numa\": 0, \"links\": [\"same\", \"fabric:18\", \"node\"],"
        "  \"processes\": {\"5\": 300, \"6\": {\"memory_bytes\": 7, \"graphics\": true}}},"
        " {\"uuid\": \"GPU-b\", \"numa\": 1},"
        " {\"uuid\": \"MIG-c\", \"parent\": 0, \"profile\": \"1g.10gb\"}]}");
    assert_string_equal(stk_accel_driver(accel), "580.65.06");
    assert_int_equal(stk_accel_cuda_version(accel), 13000);
    assert_false(stk_accel_device(accel, 0)->usable); /* split into slices */
    assert_int_equal(stk_accel_device(accel, 0)->n_slices, 1);
    assert_null(stk_accel_device(accel, 0)->trouble);
    assert_string_equal(stk_accel_device(accel, 2)->noun, "MIG slice");
    assert_int_equal(stk_accel_device(accel, 2)->parent, 0);

    int32_t n = 0;
    assert_int_equal(stk_accel_link(accel, 0, 1, &n), STK_LINK_FABRIC);
    assert_int_equal(n, 18);
    assert_int_equal(stk_accel_link(accel, 1, 0, NULL), STK_LINK_SYSTEM); /* two NUMA nodes */
    assert_int_equal(stk_accel_link(accel, 0, 2, &n), STK_LINK_SAME);
    assert_int_equal(n, -1);
    assert_int_equal(stk_accel_link(accel, 2, 1, &n), STK_LINK_FABRIC); /* its parent's link */

    stk_device_process list[4];
    assert_int_equal(stk_accel_processes(accel, 0, list, 4), 2);
    assert_int_equal(list[0].pid, 5);
    assert_int_equal(list[0].memory_bytes, 300);
    assert_false(list[0].graphics);
    assert_true(list[1].graphics);
    assert_int_equal(stk_accel_processes(accel, 0, list, 1), 1);
    assert_int_equal(stk_accel_processes(accel, 1, list, 4), -1);
    const pid_t ours[] = {5}, theirs[] = {99};
    stk_device_sample sample;
    assert_int_equal(stk_accel_sample(accel, 0, ours, 1, &sample), 0);
    assert_int_equal(sample.context, 1);
    assert_int_equal(sample.process_memory, 300);
    assert_int_equal(stk_accel_sample(accel, 0, theirs, 1, &sample), 0);
    assert_int_equal(sample.context, 0);
    assert_int_equal(sample.process_memory, -1);
    assert_int_equal(stk_accel_sample(accel, 1, ours, 1, &sample), 0);
    assert_int_equal(sample.context, -1);

    describe("[{\"lost\": \"GPU 0 has fallen off the bus\"}, {\"temperature_c\": 40}]");
    stk_device_state s;
    stk_err err = {0};
    assert_int_equal(stk_accel_state(accel, 0, &s, &err), STK_E_ENV);
    assert_string_equal(err.text, "GPU 0 has fallen off the bus");
    assert_int_equal(stk_accel_sample(accel, 0, ours, 1, &sample), STK_E_ENV);
    assert_int_equal(stk_accel_sample(accel, 1, ours, 1, &sample), 0);
    assert_int_equal(sample.temperature_c, 40);
    assert_int_equal(stk_accel_state(accel, 2, &s, &err), STK_E_ENV); /* no longer in the file */
    stk_accel_close(accel);
}

static void test_fake_events(void **state)
{
    (void)state;
    stk_accel *accel = open_fake("[{}, {\"events\": [{\"xid\": 13, \"time_ms\": 1}]}]");
    stk_device_event e;
    assert_false(stk_accel_next_event(accel, &e)); /* the event is older */
    describe("[{\"events\": [{\"xid\": 94, \"pid\": 5, \"time_ms\": 1000}]},"
             " {\"events\": [{\"xid\": 13, \"time_ms\": 1},"
             "  {\"xid\": 79, \"time_ms\": 2000}, {\"xid\": 79, \"time_ms\": 150000},"
             "  {\"xid\": 79, \"time_ms\": 329000}, {\"xid\": 79, \"time_ms\": 509000},"
             "  {\"xid\": 31, \"time_ms\": 509000, \"text\": \"own words\"}]}]");
    assert_true(stk_accel_next_event(accel, &e));
    assert_int_equal(e.i_device, 0);
    assert_int_equal(e.xid, 94);
    assert_int_equal(e.pid, 5);
    assert_int_equal(e.mono_ms, 1000);
    assert_string_equal(e.text, "Xid 94: Contained memory error");
    assert_true(stk_accel_next_event(accel, &e));
    assert_int_equal(e.i_device, 1);
    assert_string_equal(e.text, "Xid 79: GPU has fallen off the bus");
    assert_int_equal(e.mono_ms, 2000);
    assert_true(stk_accel_next_event(accel, &e)); /* the first after three minutes of silence */
    assert_int_equal(e.mono_ms, 509000);
    assert_int_equal(e.xid, 79);
    assert_true(stk_accel_next_event(accel, &e));
    assert_string_equal(e.text, "own words");
    assert_false(stk_accel_next_event(accel, &e));
    stk_accel_close(accel);
}

static void test_quarantine(void **state)
{
    (void)state;
    const char *json = "[{\"uuid\": \"GPU-a\"}, {\"uuid\": \"GPU-b\"},"
                       " {\"uuid\": \"MIG-b/1\", \"parent\": 1}]";
    stk_accel *accel = open_fake(json), *other = NULL;
    stk_err err = {0};
    assert_int_equal(stk_accel_clear_quarantine(accel, 0, &err), STK_E_NOT_FOUND);
    assert_int_equal(stk_accel_quarantine(accel, 7, "x", &err), STK_E_NOT_FOUND);

    assert_int_equal(stk_accel_quarantine(accel, 0, "Xid 79: GPU has fallen off the bus", &err), 0);
    assert_int_equal(stk_accel_quarantine(accel, 0, "second reason", &err), 0);
    assert_false(stk_accel_device(accel, 0)->usable);
    assert_true(stk_accel_device(accel, 2)->usable);
    assert_int_equal(stk_accel_open(provider, &other, NULL), 0); /* another run sees that */
    const stk_device *d = stk_accel_device(other, 0);
    assert_false(d->usable);
    assert_non_null(strstr(d->trouble, "GPU 0 is quarantined since 20"));
    assert_non_null(strstr(d->trouble, ": Xid 79: GPU has fallen off the bus;"));
    assert_non_null(strstr(d->trouble, "stoker gpus --clear GPU-a"));
    assert_null(strstr(d->trouble, "second reason"));
    assert_int_equal(stk_accel_clear_quarantine(other, 0, &err), 0);
    assert_true(stk_accel_device(other, 0)->usable);
    assert_null(stk_accel_device(other, 0)->trouble);

    assert_int_equal(stk_accel_quarantine(accel, 1, "rows are to be remapped", &err), 0);
    assert_false(stk_accel_device(accel, 2)->usable); /* slices share their device's quarantine */
    assert_non_null(strstr(stk_accel_device(accel, 2)->trouble, "rows are"));
    assert_int_equal(stk_accel_clear_quarantine(accel, 1, &err), 0);
    assert_true(stk_accel_device(accel, 2)->usable);
    assert_false(stk_accel_device(accel, 1)->usable); /* still split */
    assert_int_equal(stk_accel_quarantine(accel, 2, "a slice by itself", &err), 0);
    assert_false(stk_accel_device(accel, 2)->usable);
    assert_null(stk_accel_device(accel, 1)->trouble);
    stk_accel_close(other);
    stk_accel_close(accel);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_policy),
        cmocka_unit_test_setup_teardown(test_fake_state, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_fake_changes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_fake_events, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_quarantine, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
