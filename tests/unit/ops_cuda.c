/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening a GPU on machines that have none, or none with that number. What the kernels
 * compute is checked by `checkops --target cuda`.
 */
#include "check.h"

#include "ops/ops.h"

#include <string.h>

static void test_refused(void **state)
{
    (void)state;
    struct td_dev_params p = {.numerics = TD_NUM_BF16, .device = 99};
    struct td_dev *dev = NULL;
    struct td_error err;
    td_error_init(&err);
    td_phase_set(TD_PHASE_PLAN);
    assert_int_equal(td_cuda_open(&p, &dev, &err), TD_E_NO_DEVICE);
    assert_null(dev);
    assert_int_equal(err.code, TD_E_NO_DEVICE);
    assert_int_equal(err.phase, TD_PHASE_PLAN);
    assert_true(strlen(err.what) > 0);
    assert_true(strlen(err.why) > 0);
    assert_true(strlen(err.fix) > 0);
    assert_int_equal(td_cuda_open(&p, &dev, NULL), TD_E_NO_DEVICE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests_name("ops_cuda", tests, NULL, NULL);
}
