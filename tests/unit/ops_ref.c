/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reference shelf against the self-check vectors of the model's specification, and
 * against plain formulas where it has none.
 */
#include "check.h"

#include "base/float.h"
#include "ops/ops.h"

#include <math.h>
#include <string.h>

static const struct td_reserve small = {.max_rows = 16,
                                        .max_seqs = 4,
                                        .max_len = 256,
                                        .max_k = 512,
                                        .hidden = 256,
                                        .n_heads = 4,
                                        .n_kv = 2,
                                        .head_dim = 64,
                                        .n_k = 4,
                                        .n_v = 8,
                                        .dk = 64,
                                        .dv = 64,
                                        .experts = 8,
                                        .experts_k = 4,
                                        .expert_size = 256,
                                        .shared_size = 256};

static struct td_dev *open_dev(enum td_numerics numerics)
{
    struct td_dev_params p = {
        .numerics = numerics, .threads = 2, .budget = 1 << 28, .level = "ref"};
    struct td_dev *dev = NULL;
    assert_int_equal(td_cpu_open(&p, &dev, NULL), TD_OK);
    assert_int_equal(dev->ops.reserve(dev, &small, NULL), TD_OK);
    return dev;
}

/* Every level says before what it will take, with experts and without. */
static void test_reserve(void **state)
{
    (void)state;
    static const char *const levels[] = {"ref", "avx2", "avx512", "avx512bf16"};
    for (size_t i = 0; i < 4 * TD_COUNT(levels); i++) {
        struct td_dev_params p = {.numerics = i % 2 ? TD_NUM_BF16 : TD_NUM_F32,
                                  .threads = 1 + (int)i % 3,
                                  .budget = 1 << 28,
                                  .level = levels[i / 4]};
        struct td_reserve r = small;
        struct td_dev *dev = NULL;
        r.max_rows += (int32_t)i;
        if (i % 4 > 1)
            r.experts = r.experts_k = 0;
        if (td_cpu_open(&p, &dev, NULL) != TD_OK)
            continue; /* not on this processor */
        size_t bytes = dev->ops.reserve_bytes(dev, &r);
        assert_true(bytes > 0 && dev->used == 0);
        assert_int_equal(dev->ops.reserve(dev, &r, NULL), TD_OK);
        assert_int_equal(dev->used, bytes);
        dev->ops.close(dev);
    }
}

/* Sequences of n rows each, one block and one slot a sequence, starting at `pos`. */
struct small_batch {
    struct td_batch b;
    int32_t token[16], pos[16], seq[16], row0[17], slot[16], blocks[16];
};

static void make_batch(struct small_batch *s, int decode, int prefill, int n, int pos)
{
    int rows = 0;
    memset(s, 0, sizeof(*s));
    for (int i = 0; i < decode + prefill; i++) {
        s->row0[i] = rows;
        s->slot[i] = s->blocks[i] = i;
        for (int t = 0; t < (i < decode ? 1 : n); t++, rows++) {
            s->pos[rows] = pos + t;
            s->seq[rows] = i;
        }
    }
    s->row0[decode + prefill] = rows;
    s->b = (struct td_batch){.rows = rows,
                             .n_decode = decode,
                             .n_prefill = prefill,
                             .max_blocks = 1,
                             .token = s->token,
                             .pos = s->pos,
                             .seq = s->seq,
                             .row0 = s->row0,
                             .slot = s->slot,
                             .blocks = s->blocks};
}

static void test_norm(void **state)
{
    (void)state;
    struct td_dev *dev = open_dev(TD_NUM_F32);
    float x[4] = {1, -2, 3, 0.5f}, w[4] = {1.1f, 1.0f, 0.8f, 1.5f}, y[4], sum[4];
    float add[4] = {1, 1, 1, 1}, less[4] = {0, -3, 2, -0.5f};
    const float want[4] = {0.58279416f, -1.05962574f, 1.27155088f, 0.39735965f};
    struct td_norm_args a = {
        .x = x, .w = w, .y = y, .h = 4, .y_stride = 4, .eps = 1e-6f, .rows = 1};
    dev->ops.norm(dev, &a);
    for (int i = 0; i < 4; i++)
        assert_float_equal(y[i], want[i], 1e-6);
    a.x = less;
    a.add = add;
    a.sum = sum;
    dev->ops.norm(dev, &a);
    for (int i = 0; i < 4; i++) {
        assert_float_equal(y[i], want[i], 1e-6);
        assert_float_equal(sum[i], x[i], 0);
    }
    dev->ops.close(dev);
}

static void test_conv(void **state)
{
    (void)state;
    struct td_dev *dev = open_dev(TD_NUM_F32);
    const float w[4] = {0.1f, -0.2f, 0.3f, 0.4f}, u[5] = {1, 2, -1, 0.5f, 3};
    const float want[5] = {0.23947506f, 0.82528612f, 0, -0.16052494f, 1.49091740f};
    float history[3] = {9, 9, 9}, y[5];
    struct small_batch s;
    make_batch(&s, 0, 1, 5, 0); /* a new sequence ignores what the slot holds */
    struct td_conv_args a = {.batch = &s.b,
                             .u = u,
                             .w = w,
                             .state = history,
                             .y = y,
                             .channels = 1,
                             .width = 4};
    dev->ops.conv(dev, &a);
    for (int i = 0; i < 5; i++)
        assert_float_equal(y[i], want[i], 1e-6);
    for (int i = 0; i < 3; i++)
        assert_float_equal(history[i], u[2 + i], 0);
    dev->ops.close(dev);
}

static void test_rope(void **state)
{
    (void)state;
    struct td_dev *dev = open_dev(TD_NUM_F32);
    enum { DIM = 12, ROTARY = 8, POS = 5 };
    const float want[8] = {-0.68084227f, 0.93051670f,  0.14008105f, -0.75683031f,
                           -1.07891751f, -0.19756898f, 0.65720891f, 0.98933697f};
    float qg[2 * DIM], k[DIM], v[DIM], w[DIM], freq[ROTARY / 2], mean = 0;
    float cache_k[TD_KV_BLOCK * DIM] = {0}, cache_v[TD_KV_BLOCK * DIM] = {0};
    for (int i = 0; i < DIM; i++) {
        qg[i] = k[i] = sinf(1.0f + (float)i);
        v[i] = (float)i;
        qg[DIM + i] = 7;
        mean += k[i] * k[i] / DIM;
    }
    for (int i = 0; i < DIM; i++)
        w[i] = sqrtf(mean); /* undoes the norm: the vector is about the rotation */
    for (int i = 0; i < ROTARY / 2; i++)
        freq[i] = (float)pow(1e7, -2.0 * i / ROTARY);
    struct small_batch s;
    make_batch(&s, 1, 0, 1, POS);
    struct td_qkv_args a = {.batch = &s.b,
                            .qg = qg,
                            .k = k,
                            .v = v,
                            .q_norm = w,
                            .k_norm = w,
                            .inv_freq = freq,
                            .kv = {cache_k, cache_v},
                            .n_heads = 1,
                            .n_kv = 1,
                            .head_dim = DIM,
                            .rotary = ROTARY,
                            .eps = 0};
    dev->ops.qkv(dev, &a);
    for (int i = 0; i < DIM; i++) {
        float expect = i < ROTARY ? want[i] : sinf(1.0f + (float)i);
        assert_float_equal(qg[i], expect, 2e-6);
        assert_float_equal(cache_k[POS * DIM + i], expect, 2e-6);
        assert_float_equal(cache_v[POS * DIM + i], v[i], 0);
        assert_float_equal(qg[DIM + i], 7, 0);
    }
    dev->ops.close(dev);
}

static void test_route(void **state)
{
    (void)state;
    struct td_dev *dev = open_dev(TD_NUM_F32);
    const float logits[12] = {0.5f, 2, -1, 1.5f, 0, 1, 3, 3, 3, 3, 3, 3};
    const float want[3] = {0.50648039f, 0.30719589f, 0.18632372f};
    const int32_t want_id[6] = {1, 3, 5, 0, 1, 2}; /* ties: lowest index first */
    float weight[6];
    int32_t id[6];
    struct td_route_args a = {
        .logits = logits, .id = id, .weight = weight, .rows = 2, .experts = 6, .k = 3};
    dev->ops.route(dev, &a);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(id[i], want_id[i]);
        assert_float_equal(weight[i], i < 3 ? want[i] : 1.0f / 3, 1e-6);
    }
    dev->ops.close(dev);
}

enum { NK = 2, NV = 4, DK = 4, DV = 3, T = 5 };

static void delta_inputs(float *c, float *a, float *b)
{
    enum { WIDTH = 2 * NK * DK + NV * DV };
    for (int t = 0; t < T; t++) {
        float *q = c + t * WIDTH, *k = q + NK * DK, *v = k + NK * DK;
        for (int h = 0; h < NK; h++) {
            for (int i = 0; i < DK; i++) {
                q[h * DK + i] = (float)sin(0.1 * (1 + t) + 0.7 * h + 0.3 * i);
                k[h * DK + i] = (float)cos(0.2 * (1 + t) + 0.5 * h + 0.9 * i);
            }
        }
        for (int j = 0; j < NV; j++) {
            for (int i = 0; i < DV; i++)
                v[j * DV + i] = (float)sin(0.4 * (1 + t) + 0.6 * j + 1.1 * i);
            a[t * NV + j] = (float)(0.5 * sin(t + j));
            b[t * NV + j] = (float)cos(t - j);
        }
    }
}

static void check_delta(const float *y, const float *S, struct td_dev *dev)
{
    const float want[NV][DV] = {{-0.15290936f, -0.02333853f, 0.13173683f},
                                {-0.08045236f, 0.05663958f, 0.13183535f},
                                {0.00425875f, 0.15974566f, 0.14066127f},
                                {0.15884576f, 0.25573899f, 0.07315867f}};
    const float gated[NV][DV] = {{-0.95292418f, -0.13565266f, 0.46008055f},
                                 {-0.58439710f, 0.30503474f, 0.25239561f},
                                 {0.01988462f, 0.39652721f, -0.01975625f},
                                 {0.35912525f, 0.14498219f, -0.06662029f}};
    const float first[DV] = {0.22747552f, 0.08240161f, -0.15272142f};
    const float last[DV] = {-0.30869266f, -0.08837347f, 0.22852093f};
    float o[NV * DV], z[NV * DV];
    const float w[DV] = {1, 1.1f, 1.2f};
    for (int j = 0; j < NV; j++) {
        for (int c = 0; c < DV; c++) {
            o[j * DV + c] = y[(T - 1) * NV * DV + j * DV + c];
            z[j * DV + c] = (float)cos(0.3 * j + 0.5 * c);
            assert_float_equal(o[j * DV + c], want[j][c], 1e-6);
        }
    }
    for (int c = 0; c < DV; c++) {
        assert_float_equal(S[c], first[c], 1e-6);
        assert_float_equal(S[3 * DV + c], last[c], 1e-6);
    }
    struct td_gated_norm_args g = {
        .x = o, .z = z, .w = w, .eps = 1e-6f, .rows = 1, .heads = NV, .dim = DV};
    dev->ops.gated_norm(dev, &g);
    for (int i = 0; i < NV * DV; i++)
        assert_float_equal(o[i], gated[i / DV][i % DV], 2e-6);
}

static void test_delta(void **state)
{
    (void)state;
    struct td_dev *dev = open_dev(TD_NUM_F32);
    enum { WIDTH = 2 * NK * DK + NV * DV };
    float c[T * WIDTH], a[T * NV], b[T * NV], y[T * NV * DV], S[NV * DK * DV];
    float a_neg[NV], dt_bias[NV];
    for (int j = 0; j < NV; j++) {
        a_neg[j] = -(float)(1 + j);
        dt_bias[j] = 0.1f * (float)j;
    }
    delta_inputs(c, a, b);
    struct small_batch s;
    struct td_delta_args args = {.c = c,
                                 .a = a,
                                 .b = b,
                                 .a_neg = a_neg,
                                 .dt_bias = dt_bias,
                                 .state = S,
                                 .y = y,
                                 .n_k = NK,
                                 .n_v = NV,
                                 .dk = DK,
                                 .dv = DV};
    make_batch(&s, 0, 1, T, 0); /* chunked */
    args.batch = &s.b;
    memset(S, 0x55, sizeof(S));
    dev->ops.delta(dev, &args);
    check_delta(y, S, dev);
    memset(S, 0x55, sizeof(S));
    for (int t = 0; t < T; t++) { /* recurrent */
        make_batch(&s, 1, 0, 1, t);
        args.c = c + t * WIDTH;
        args.a = a + t * NV;
        args.b = b + t * NV;
        args.y = y + t * NV * DV;
        dev->ops.delta(dev, &args);
    }
    check_delta(y, S, dev);
    dev->ops.close(dev);
}

/* FP8 with partial blocks, BF16 and F16 matrices against a sum in double. */
static void test_linear(void **state)
{
    (void)state;
    enum { N = 130, K = 200, ROWS = 3 };
    static uint8_t f8[N * K];
    static uint16_t b16[N * K], f16[N * K];
    static float x[ROWS * K], y[3][ROWS * N];
    float scale[4] = {0.5f, 0.25f, 2.0f, 1.5f};
    struct td_dev *dev = open_dev(TD_NUM_F32);
    struct td_matrix m[3] = {{.type = TD_MAT_F8, .n = N, .k = K, .scale = scale},
                             {.type = TD_MAT_BF16, .n = N, .k = K},
                             {.type = TD_MAT_F32, .n = N, .k = K}};
    const void *src[3] = {f8, b16, f16};
    const enum td_dtype from[3] = {TD_DTYPE_F8_E4M3, TD_DTYPE_BF16, TD_DTYPE_F16};
    struct td_linear_args a = {.x = x, .x_stride = K, .rows = ROWS, .count = 3};
    for (int i = 0; i < N * K; i++) {
        float w = (float)((i * 37) % 101 - 50) / 64;
        f8[i] = td_e4m3_from_f32(w);
        b16[i] = td_bf16_from_f32(w);
        f16[i] = td_f16_from_f32(w);
    }
    for (int i = 0; i < ROWS * K; i++)
        x[i] = (float)((i * 29) % 97 - 48) / 32;
    for (int i = 0; i < 3; i++) {
        size_t bytes = dev->ops.matrix_bytes(dev, m[i].type, N, K);
        assert_int_equal(dev->ops.alloc(dev, bytes, "test", &m[i].data, NULL), TD_OK);
        size_t row = (size_t)K * (i == 0 ? 1 : 2);
        dev->ops.pack(dev, &m[i], 0, 100, src[i], from[i]);
        dev->ops.pack(dev, &m[i], 100, 30, (const char *)src[i] + 100 * row, from[i]);
        a.term[i].w = &m[i];
        a.term[i].y = y[i];
        a.term[i].y_stride = N;
    }
    dev->ops.linear(dev, &a);
    for (int r = 0; r < ROWS; r++) {
        for (int n = 0; n < N; n++) {
            double want[3] = {0};
            for (int k = 0; k < K; k++) {
                float s = scale[n / 128 * 2 + k / 128];
                double v = (double)x[r * K + k];
                want[0] += (double)td_f32_from_e4m3(f8[n * K + k]) * (double)s * v;
                want[1] += (double)td_f32_from_bf16(b16[n * K + k]) * v;
                want[2] += (double)td_f32_from_f16(f16[n * K + k]) * v;
            }
            for (int i = 0; i < 3; i++)
                assert_float_equal(y[i][r * N + n], (float)want[i], 1e-3);
        }
    }
    dev->ops.close(dev);
}

static void test_budget(void **state)
{
    (void)state;
    struct td_dev *dev = open_dev(TD_NUM_F32);
    struct td_error err;
    void *p = NULL;
    td_error_init(&err);
    assert_int_equal(dev->ops.alloc(dev, (size_t)1 << 40, "weights", &p, &err),
                     TD_E_MEMORY_PLAN);
    assert_non_null(strstr(err.what, "weights"));
    assert_null(p);
    dev->ops.close(dev);
}

static void test_levels(void **state)
{
    (void)state;
    struct td_error err;
    struct td_dev *dev = NULL;
    struct td_dev_params p = {.budget = 1, .level = "quantum"};
    td_error_init(&err);
    assert_int_equal(td_cpu_open(&p, &dev, &err), TD_E_USAGE);
    assert_non_null(strstr(err.why, "ref"));
    assert_null(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reserve), cmocka_unit_test(test_norm),
        cmocka_unit_test(test_conv),    cmocka_unit_test(test_rope),
        cmocka_unit_test(test_route),   cmocka_unit_test(test_delta),
        cmocka_unit_test(test_linear),  cmocka_unit_test(test_budget),
        cmocka_unit_test(test_levels),
    };
    return cmocka_run_group_tests_name("ops_ref", tests, NULL, NULL);
}
