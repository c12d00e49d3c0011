// The operations that tensors have as functions and as methods, by how many results they give.
//
// All go through the worker's dispatcher by name: arguments are given in the order of PyTorch's signature, or by name.
// What is not listed here is reached by at::call("name", arguments...).
#pragma once

#define TELEGRAD_ONE_RESULT(_)                                                                                      \
  _(abs) _(acos) _(acosh) _(add) _(addbmm) _(addcdiv) _(addcmul) _(addmm) _(addmv) _(addr) _(alias) _(all) _(amax)  \
  _(amin) _(angle) _(any) _(argmax) _(argmin) _(argsort) _(argwhere) _(as_strided) _(as_strided_scatter) _(asin)    \
  _(asinh) _(atan) _(atan2) _(atanh) _(baddbmm) _(bernoulli) _(bincount) _(bitwise_and) _(bitwise_left_shift)       \
  _(bitwise_not) _(bitwise_or) _(bitwise_right_shift) _(bitwise_xor) _(bmm) _(broadcast_to) _(ceil) _(celu)         \
  _(cholesky) _(cholesky_inverse) _(cholesky_solve) _(clamp) _(clamp_max) _(clamp_min) _(clone) _(conj)             \
  _(conj_physical) _(copysign) _(cos) _(cosh) _(count_nonzero) _(cross) _(cumprod) _(cumsum) _(deg2rad) _(det)      \
  _(diag) _(diag_embed) _(diagonal) _(diagonal_scatter) _(diff) _(digamma) _(dist) _(div) _(dot) _(elu) _(eq)       \
  _(erf) _(erfc) _(erfinv) _(exp) _(exp2) _(expand) _(expand_as) _(expm1) _(flatten) _(flip) _(fliplr) _(flipud)    \
  _(floor) _(floor_divide) _(fmax) _(fmin) _(fmod) _(frac) _(gather) _(gcd) _(ge) _(gelu) _(ger) _(glu) _(gt)       \
  _(hardshrink) _(hardsigmoid) _(hardswish) _(hardtanh) _(heaviside) _(hypot) _(i0) _(igamma) _(igammac) _(imag)    \
  _(index_add) _(index_copy) _(index_fill) _(index_select) _(inner) _(inverse) _(isclose) _(isfinite)  \
  _(isinf) _(isnan) _(isneginf) _(isposinf) _(istft) _(kron) _(lcm) _(le) _(leaky_relu) _(lerp) _(lgamma) _(log)    \
  _(log10) _(log1p) _(log2) _(log_softmax) _(logaddexp) _(logaddexp2) _(logcumsumexp) _(logdet) _(logical_and)      \
  _(logical_not) _(logical_or) _(logical_xor) _(logit) _(logsumexp) _(lt) _(lu_solve) _(masked_fill)                \
  _(masked_scatter) _(masked_select) _(matmul) _(matrix_exp) _(matrix_power) _(maximum) _(mean) _(minimum) _(mish)  \
  _(mm) _(moveaxis) _(movedim) _(msort) _(mul) _(multinomial) _(mv) _(mvlgamma) _(nan_to_num) _(nanmean)            \
  _(nanmedian) _(nanquantile) _(nansum) _(narrow) _(ne) _(neg) _(new_empty) _(new_empty_strided) _(new_full)        \
  _(new_ones) _(new_zeros) _(nextafter) _(nonzero) _(norm) _(nuclear_norm) _(orgqr) _(ormqr) _(outer) _(permute)    \
  _(pinverse) _(positive) _(pow) _(prelu) _(prod) _(put) _(quantile) _(rad2deg) _(ravel) _(real) _(reciprocal)      \
  _(relu) _(remainder) _(renorm) _(repeat) _(repeat_interleave) _(reshape) _(reshape_as) _(roll) _(rot90) _(round)  \
  _(rsqrt) _(rsub) _(scatter) _(scatter_add) _(scatter_reduce) _(select) _(select_scatter) _(selu) _(sgn)           \
  _(sigmoid) _(sign) _(signbit) _(silu) _(sin) _(sinc) _(sinh) _(slice) _(slice_scatter) _(softmax) _(softplus)     \
  _(sqrt) _(square) _(squeeze) _(std) _(stft) _(sub) _(sum) _(swapaxes) _(swapdims) _(t) _(take) _(take_along_dim)  \
  _(tan) _(tanh) _(tile) _(trace) _(transpose) _(tril) _(triu) _(true_divide) _(trunc) _(unflatten) _(unfold)       \
  _(unsqueeze) _(var) _(vdot) _(view) _(view_as) _(view_as_complex) _(view_as_real) _(xlogy)

// Functions that are no methods of tensors.
#define TELEGRAD_ONLY_FUNCTIONS(_)                                                                                  \
  _(adaptive_avg_pool1d) _(adaptive_avg_pool2d) _(adaptive_avg_pool3d) _(alpha_dropout) _(avg_pool1d)               \
  _(avg_pool2d) _(avg_pool3d) _(batch_norm) _(bilinear) _(binary_cross_entropy)                                     \
  _(binary_cross_entropy_with_logits) _(bucketize) _(complex) _(constant_pad_nd) _(conv1d) _(conv2d) _(conv3d)      \
  _(conv_transpose1d) _(conv_transpose2d) _(conv_transpose3d) _(convolution) _(cosine_similarity) _(cross_entropy)  \
  _(dropout) _(embedding_dense_backward) _(empty_like) _(feature_dropout) _(fft_fft) _(fft_fft2)                    \
  _(fft_fftn) _(fft_fftshift) _(fft_hfft) _(fft_hfft2) _(fft_hfftn) _(fft_ifft) _(fft_ifft2) _(fft_ifftn)           \
  _(fft_ifftshift) _(fft_ihfft) _(fft_ihfft2) _(fft_ihfftn) _(fft_irfft) _(fft_irfft2) _(fft_irfftn) _(fft_rfft)    \
  _(fft_rfft2) _(fft_rfftn) _(frobenius_norm) _(full_like) _(group_norm) _(hash_tensor) _(huber_loss) _(im2col)     \
  _(kl_div) _(l1_loss) _(layer_norm) _(linalg_cholesky) _(linalg_cond) _(linalg_cross) _(linalg_det)                \
  _(linalg_diagonal) _(linalg_eigvals) _(linalg_eigvalsh) _(linalg_householder_product) _(linalg_inv)               \
  _(linalg_ldl_solve) _(linalg_lu_solve) _(linalg_matmul) _(linalg_matrix_exp) _(linalg_matrix_norm)                \
  _(linalg_matrix_power) _(linalg_matrix_rank) _(linalg_norm) _(linalg_pinv) _(linalg_solve)                        \
  _(linalg_solve_triangular) _(linalg_svdvals) _(linalg_tensorinv) _(linalg_tensorsolve) _(linalg_vander)           \
  _(linalg_vecdot) _(linalg_vector_norm) _(linear) _(max_pool1d) _(max_pool2d) _(max_pool3d)                        \
  _(mse_loss) _(native_dropout_backward) _(nll_loss) _(one_hot) _(ones_like) _(pad) _(poisson)                      \
  _(polar) _(rand_like) _(randint_like) _(randn_like) _(relu6) _(rms_norm) _(scaled_dot_product_attention)          \
  _(searchsorted) _(smooth_l1_loss) _(softshrink) _(special_airy_ai) _(special_bessel_j0) _(special_bessel_j1)      \
  _(special_bessel_y0) _(special_bessel_y1) _(special_chebyshev_polynomial_t) _(special_chebyshev_polynomial_u)     \
  _(special_chebyshev_polynomial_v) _(special_chebyshev_polynomial_w) _(special_entr) _(special_erfcx)              \
  _(special_hermite_polynomial_h) _(special_hermite_polynomial_he) _(special_i0e) _(special_i1) _(special_i1e)      \
  _(special_laguerre_polynomial_l) _(special_legendre_polynomial_p) _(special_log_ndtr) _(special_log_softmax)      \
  _(special_modified_bessel_i0) _(special_modified_bessel_i1) _(special_modified_bessel_k0)                         \
  _(special_modified_bessel_k1) _(special_ndtr) _(special_ndtri) _(special_scaled_modified_bessel_k0)               \
  _(special_scaled_modified_bessel_k1) _(special_shifted_chebyshev_polynomial_t)                                    \
  _(special_shifted_chebyshev_polynomial_u) _(special_shifted_chebyshev_polynomial_v)                               \
  _(special_shifted_chebyshev_polynomial_w) _(special_softmax) _(special_spherical_bessel_j0) _(special_xlog1py)    \
  _(special_zeta) _(threshold) _(vander) _(zeros_like)

#define TELEGRAD_IN_PLACE(_)                                                                                        \
  _(abs_) _(acos_) _(acosh_) _(add_) _(addbmm_) _(addcdiv_) _(addcmul_) _(addmm_) _(addmv_) _(addr_) _(asin_)       \
  _(asinh_) _(atan2_) _(atan_) _(atanh_) _(baddbmm_) _(bernoulli_) _(bitwise_and_) _(bitwise_left_shift_)           \
  _(bitwise_not_) _(bitwise_or_) _(bitwise_right_shift_) _(bitwise_xor_) _(cauchy_) _(ceil_) _(celu_) _(clamp_)     \
  _(clamp_max_) _(clamp_min_) _(copy_) _(copysign_) _(cos_) _(cosh_) _(cumprod_) _(cumsum_) _(deg2rad_) _(digamma_) \
  _(div_) _(elu_) _(eq_) _(erf_) _(erfc_) _(erfinv_) _(exp2_) _(exp_) _(expm1_) _(exponential_) _(fill_) _(floor_)  \
  _(floor_divide_) _(fmod_) _(frac_) _(gcd_) _(ge_) _(geometric_) _(gt_) _(hardsigmoid_) _(hardswish_) _(hardtanh_) \
  _(heaviside_) _(hypot_) _(i0_) _(igamma_) _(igammac_) _(index_add_) _(index_copy_) _(index_fill_) _(lcm_) _(le_)  \
  _(leaky_relu_) _(lerp_) _(lgamma_) _(log10_) _(log1p_) _(log2_) _(log_) _(log_normal_) _(logical_and_)            \
  _(logical_not_) _(logical_or_) _(logical_xor_) _(logit_) _(lt_) _(masked_fill_) _(masked_scatter_) _(mish_)       \
  _(mul_) _(mvlgamma_) _(nan_to_num_) _(ne_) _(neg_) _(nextafter_) _(normal_) _(pow_) _(put_) _(rad2deg_)           \
  _(random_) _(reciprocal_) _(relu6_) _(relu_) _(remainder_) _(round_) _(rsqrt_) _(scatter_) _(scatter_add_)        \
  _(scatter_reduce_) _(selu_) _(sgn_) _(sigmoid_) _(sign_) _(silu_) _(sin_) _(sinc_) _(sinh_) _(sqrt_) _(square_)   \
  _(sub_) _(tan_) _(tanh_) _(threshold_) _(tril_) _(triu_) _(true_divide_) _(trunc_) _(uniform_) _(xlogy_) _(zero_)

#define TELEGRAD_TWO_RESULTS(_)                                                                                     \
  _(aminmax) _(cummax) _(cummin) _(frexp) _(kthvalue) _(mode) _(qr) _(slogdet) _(sort) _(std_mean) _(topk) _(var_mean)
#define TELEGRAD_TWO_RESULTS_FUNCTIONS(_)                                                                           \
  _(adaptive_max_pool1d) _(adaptive_max_pool2d) _(adaptive_max_pool3d) _(geqrf) _(linalg_cholesky_ex) _(linalg_eig) \
  _(linalg_eigh) _(linalg_inv_ex) _(linalg_ldl_factor) _(linalg_lu_factor) _(linalg_qr) _(linalg_slogdet)           \
  _(linalg_solve_ex) _(native_dropout) _(triangular_solve)
#define TELEGRAD_THREE_RESULTS_FUNCTIONS(_)                                                                         \
  _(linalg_ldl_factor_ex) _(linalg_lu) _(linalg_lu_factor_ex) _(linalg_svd) _(lu_unpack)
#define TELEGRAD_THREE_RESULTS(_) _(svd)
#define TELEGRAD_MANY_RESULTS(_) _(chunk) _(split) _(split_with_sizes) _(tensor_split) _(unbind)

// Functions that PyTorch has with an output, as at::add_out(out, a, b).
#define TELEGRAD_WITH_OUTPUT(_)                                                                                     \
  _(abs) _(add) _(addcmul) _(addmm) _(addmv) _(all) _(amax) _(amin) _(any) _(argmax) _(argmin) _(baddbmm)           \
  _(bitwise_and) _(bitwise_not) _(bitwise_or) _(bitwise_xor) _(bmm) _(ceil) _(clamp) _(cos) _(cumprod) _(cumsum)    \
  _(div) _(dot) _(eq) _(erf) _(exp) _(floor) _(floor_divide) _(gather) _(ge) _(gt) _(index_select) _(le) _(log)     \
  _(logical_and) _(logical_not) _(logical_or) _(logsumexp) _(lt) _(matmul) _(maximum) _(mean) _(minimum) _(mm)      \
  _(mul) _(mv) _(ne) _(neg) _(norm) _(outer) _(pow) _(prod) _(reciprocal) _(remainder) _(round) _(rsqrt)            \
  _(sigmoid) _(sign) _(sin) _(sqrt) _(std) _(sub) _(sum) _(take) _(tan) _(tanh) _(tril) _(triu) _(trunc) _(var)

// Names that PyTorch has for other ones.
#define TELEGRAD_ALIASES(_)                                                                                         \
  _(absolute, abs) _(arccos, acos) _(arccosh, acosh) _(arcsin, asin) _(arcsinh, asinh) _(arctan, atan)              \
  _(arctan2, atan2) _(arctanh, atanh) _(clip, clamp) _(divide, div) _(fix, trunc) _(greater, gt)                    \
  _(greater_equal, ge) _(less, lt) _(less_equal, le) _(multiply, mul) _(negative, neg) _(not_equal, ne)             \
  _(special_digamma, digamma) _(special_erf, erf) _(special_erfc, erfc) _(special_erfinv, erfinv)                   \
  _(special_exp2, exp2) _(special_expit, sigmoid) _(special_expm1, expm1) _(special_gammainc, igamma)               \
  _(special_gammaincc, igammac) _(special_gammaln, lgamma) _(special_i0, i0) _(special_log1p, log1p)                \
  _(special_logit, logit) _(special_logsumexp, logsumexp) _(special_multigammaln, mvlgamma) _(special_psi, digamma) \
  _(special_round, round) _(special_sinc, sinc) _(special_xlogy, xlogy) _(subtract, sub)
#define TELEGRAD_IN_PLACE_ALIASES(_)                                                                                \
  _(absolute_, abs_) _(arccos_, acos_) _(arccosh_, acosh_) _(arcsin_, asin_) _(arcsinh_, asinh_)                    \
  _(arctan2_, atan2_) _(arctan_, atan_) _(arctanh_, atanh_) _(clip_, clamp_) _(divide_, div_) _(fix_, trunc_)       \
  _(greater_, gt_) _(greater_equal_, ge_) _(less_, lt_) _(less_equal_, le_) _(multiply_, mul_) _(negative_, neg_)   \
  _(not_equal_, ne_) _(subtract_, sub_)

// What no tensor of an extension is.
#define TELEGRAD_NEVER(_)                                                                                           \
  _(is_sparse) _(is_sparse_csr) _(is_meta) _(is_quantized) _(is_mkldnn) _(is_nested) _(is_conj) _(is_neg) _(is_xpu)     \
  _(is_mps) _(is_hpu) _(is_privateuseone) _(is_distributed) _(is_pinned) _(is_vulkan)
