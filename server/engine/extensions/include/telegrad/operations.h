// The operations that tensors have as functions and as methods, by how many results they give.
//
// All go through the worker's dispatcher by name: arguments are given in the order of PyTorch's signature, or by name.
// What is not listed here is reached by at::call("name", arguments...).
#pragma once

#define TELEGRAD_ONE_RESULT(_)                                                                                      \
  _(abs) _(acos) _(acosh) _(addbmm) _(addcdiv) _(addcmul) _(addmm) _(addmv) _(addr) _(alias) _(all) _(amax)         \
  _(amin) _(angle) _(any) _(argmax) _(argmin) _(argsort) _(argwhere) _(as_strided) _(asin) _(asinh) _(atan)         \
  _(atan2) _(atanh) _(baddbmm) _(bernoulli) _(bincount) _(bitwise_and) _(bitwise_left_shift) _(bitwise_not)         \
  _(bitwise_or) _(bitwise_right_shift) _(bitwise_xor) _(bmm) _(broadcast_to) _(ceil) _(celu) _(cholesky) _(clamp)   \
  _(clamp_max) _(clamp_min) _(clone) _(conj) _(copysign) _(cos) _(cosh) _(count_nonzero) _(cross) _(cumprod)        \
  _(cumsum) _(deg2rad) _(det) _(diag) _(diag_embed) _(diagonal) _(diff) _(digamma) _(dist) _(div) _(dot) _(elu)     \
  _(eq) _(erf) _(erfc) _(erfinv) _(exp) _(exp2) _(expand) _(expand_as) _(expm1) _(flatten) _(flip) _(floor)         \
  _(floor_divide) _(fmax) _(fmin) _(fmod) _(frac) _(gather) _(ge) _(gelu) _(ger) _(glu) _(gt) _(hardsigmoid)        \
  _(hardswish) _(hardtanh) _(heaviside) _(hypot) _(i0) _(imag) _(index_add) _(index_copy) _(index_fill)             \
  _(index_select) _(inner) _(inverse) _(isclose) _(isfinite) _(isinf) _(isnan) _(kron) _(le) _(leaky_relu) _(lerp)  \
  _(lgamma) _(log) _(log10) _(log1p) _(log2) _(log_softmax) _(logaddexp) _(logcumsumexp) _(logdet) _(logical_and)   \
  _(logical_not) _(logical_or) _(logical_xor) _(logit) _(logsumexp) _(lt) _(masked_fill) _(masked_scatter)          \
  _(masked_select) _(matmul) _(matrix_exp) _(matrix_power) _(maximum) _(mean) _(minimum) _(mish) _(mm) _(movedim)   \
  _(mul) _(multinomial) _(mv) _(nan_to_num) _(nansum) _(narrow) _(ne) _(neg) _(new_empty) _(new_full) _(new_ones)   \
  _(new_zeros) _(nonzero) _(norm) _(outer) _(permute) _(pinverse) _(pow) _(prelu) _(prod) _(rad2deg) _(ravel)       \
  _(real) _(reciprocal) _(relu) _(remainder) _(renorm) _(repeat) _(repeat_interleave) _(reshape) _(reshape_as)      \
  _(roll) _(rot90) _(round) _(rsqrt) _(rsub) _(scatter) _(scatter_add) _(scatter_reduce) _(select) _(selu) _(sgn)   \
  _(sigmoid) _(sign) _(signbit) _(silu) _(sin) _(sinc) _(sinh) _(slice) _(softmax) _(softplus) _(sqrt) _(square)    \
  _(squeeze) _(std) _(sub) _(sum) _(swapaxes) _(t) _(take) _(tan) _(tanh) _(tile) _(trace) _(transpose) _(tril)     \
  _(triu) _(true_divide) _(trunc) _(unflatten) _(unfold) _(unsqueeze) _(var) _(vdot) _(view) _(view_as)             \
  _(view_as_complex) _(view_as_real) _(xlogy) _(add)

// Functions that are no methods of tensors.
#define TELEGRAD_ONLY_FUNCTIONS(_)                                                                                  \
  _(adaptive_avg_pool2d) _(avg_pool2d) _(batch_norm) _(binary_cross_entropy) _(binary_cross_entropy_with_logits)    \
  _(bucketize) _(conv1d) _(conv2d) _(conv3d) _(conv_transpose2d) _(cosine_similarity) _(cross_entropy) _(dropout)   \
  _(group_norm) _(huber_loss) _(kl_div) _(l1_loss) _(layer_norm) _(linalg_cholesky) _(linalg_det) _(linalg_inv)     \
  _(linalg_matrix_norm) _(linalg_norm) _(linalg_solve) _(linalg_vector_norm) _(linear) _(max_pool2d) _(mse_loss)    \
  _(nll_loss) _(one_hot) _(pad) _(polar) _(rms_norm) _(scaled_dot_product_attention) _(searchsorted)                \
  _(smooth_l1_loss) _(special_erfcx) _(complex) _(fft_fft) _(fft_ifft) _(fft_rfft) _(fft_irfft) _(empty_like)       \
  _(rand_like) _(randn_like) _(zeros_like) _(ones_like) _(full_like)

#define TELEGRAD_IN_PLACE(_)                                                                                        \
  _(abs_) _(add_) _(addcdiv_) _(addcmul_) _(addmm_) _(addmv_) _(atan_) _(baddbmm_) _(bernoulli_) _(bitwise_and_)    \
  _(bitwise_not_) _(bitwise_or_) _(bitwise_xor_) _(ceil_) _(clamp_) _(clamp_max_) _(clamp_min_) _(copy_) _(cos_)    \
  _(cumsum_) _(div_) _(elu_) _(erf_) _(exp_) _(expm1_) _(exponential_) _(fill_) _(floor_) _(fmod_) _(frac_)         \
  _(hardtanh_) _(index_add_) _(index_copy_) _(index_fill_) _(leaky_relu_) _(lerp_) _(log1p_) _(log2_) _(log_)       \
  _(logical_and_) _(logical_not_) _(logical_or_) _(masked_fill_) _(masked_scatter_) _(mul_) _(nan_to_num_) _(neg_)  \
  _(normal_) _(pow_) _(put_) _(random_) _(reciprocal_) _(relu_) _(remainder_) _(round_) _(rsqrt_) _(scatter_)       \
  _(scatter_add_) _(scatter_reduce_) _(sigmoid_) _(sign_) _(silu_) _(sin_) _(sinh_) _(sqrt_) _(square_) _(sub_)     \
  _(tan_) _(tanh_) _(tril_) _(triu_) _(trunc_) _(uniform_) _(xlogy_) _(zero_)

#define TELEGRAD_TWO_RESULTS(_)                                                                                     \
  _(aminmax) _(cummax) _(cummin) _(frexp) _(kthvalue) _(mode) _(qr) _(slogdet) _(sort) _(std_mean) _(topk) _(var_mean)
#define TELEGRAD_TWO_RESULTS_FUNCTIONS(_) _(linalg_eigh) _(linalg_qr) _(linalg_slogdet)
#define TELEGRAD_THREE_RESULTS(_) _(svd)
#define TELEGRAD_MANY_RESULTS(_) _(chunk) _(split) _(split_with_sizes) _(tensor_split) _(unbind)
