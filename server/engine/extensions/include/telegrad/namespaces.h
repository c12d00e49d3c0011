// torch::fft, torch::special and torch::linalg: the functions that at has with these words before their names.
#pragma once

#include "composites.h"

#define TELEGRAD_NAMED(space, name)                                                                  \
  template <class... A>                                                                              \
  auto name(const at::Tensor& self, const A&... given) { return at::space##_##name(self, given...); }
namespace torch::fft {
#define TELEGRAD_NAME(name) TELEGRAD_NAMED(fft, name)
TELEGRAD_NAME(fft) TELEGRAD_NAME(fft2) TELEGRAD_NAME(fftn) TELEGRAD_NAME(fftshift) TELEGRAD_NAME(hfft)
TELEGRAD_NAME(hfft2) TELEGRAD_NAME(hfftn) TELEGRAD_NAME(ifft) TELEGRAD_NAME(ifft2) TELEGRAD_NAME(ifftn)
TELEGRAD_NAME(ifftshift) TELEGRAD_NAME(ihfft) TELEGRAD_NAME(ihfft2) TELEGRAD_NAME(ihfftn) TELEGRAD_NAME(irfft)
TELEGRAD_NAME(irfft2) TELEGRAD_NAME(irfftn) TELEGRAD_NAME(rfft) TELEGRAD_NAME(rfft2) TELEGRAD_NAME(rfftn)
#undef TELEGRAD_NAME
}  // namespace torch::fft
namespace torch::special {
#define TELEGRAD_NAME(name) TELEGRAD_NAMED(special, name)
TELEGRAD_NAME(airy_ai) TELEGRAD_NAME(bessel_j0) TELEGRAD_NAME(bessel_j1) TELEGRAD_NAME(bessel_y0)
TELEGRAD_NAME(bessel_y1) TELEGRAD_NAME(chebyshev_polynomial_t) TELEGRAD_NAME(chebyshev_polynomial_u)
TELEGRAD_NAME(chebyshev_polynomial_v) TELEGRAD_NAME(chebyshev_polynomial_w) TELEGRAD_NAME(digamma) TELEGRAD_NAME(entr)
TELEGRAD_NAME(erf) TELEGRAD_NAME(erfc) TELEGRAD_NAME(erfcx) TELEGRAD_NAME(erfinv) TELEGRAD_NAME(exp2)
TELEGRAD_NAME(expit) TELEGRAD_NAME(expm1) TELEGRAD_NAME(gammainc) TELEGRAD_NAME(gammaincc) TELEGRAD_NAME(gammaln)
TELEGRAD_NAME(hermite_polynomial_h) TELEGRAD_NAME(hermite_polynomial_he) TELEGRAD_NAME(i0) TELEGRAD_NAME(i0e)
TELEGRAD_NAME(i1) TELEGRAD_NAME(i1e) TELEGRAD_NAME(laguerre_polynomial_l) TELEGRAD_NAME(legendre_polynomial_p)
TELEGRAD_NAME(log1p) TELEGRAD_NAME(log_ndtr) TELEGRAD_NAME(log_softmax) TELEGRAD_NAME(logit) TELEGRAD_NAME(logsumexp)
TELEGRAD_NAME(modified_bessel_i0) TELEGRAD_NAME(modified_bessel_i1) TELEGRAD_NAME(modified_bessel_k0)
TELEGRAD_NAME(modified_bessel_k1) TELEGRAD_NAME(multigammaln) TELEGRAD_NAME(ndtr) TELEGRAD_NAME(ndtri)
TELEGRAD_NAME(psi) TELEGRAD_NAME(round) TELEGRAD_NAME(scaled_modified_bessel_k0)
TELEGRAD_NAME(scaled_modified_bessel_k1) TELEGRAD_NAME(shifted_chebyshev_polynomial_t)
TELEGRAD_NAME(shifted_chebyshev_polynomial_u) TELEGRAD_NAME(shifted_chebyshev_polynomial_v)
TELEGRAD_NAME(shifted_chebyshev_polynomial_w) TELEGRAD_NAME(sinc) TELEGRAD_NAME(softmax)
TELEGRAD_NAME(spherical_bessel_j0) TELEGRAD_NAME(xlog1py) TELEGRAD_NAME(xlogy) TELEGRAD_NAME(zeta)
#undef TELEGRAD_NAME
}  // namespace torch::special
namespace torch::linalg {
#define TELEGRAD_NAME(name) TELEGRAD_NAMED(linalg, name)
TELEGRAD_NAME(cholesky) TELEGRAD_NAME(cholesky_ex) TELEGRAD_NAME(cond) TELEGRAD_NAME(cross) TELEGRAD_NAME(det)
TELEGRAD_NAME(diagonal) TELEGRAD_NAME(eig) TELEGRAD_NAME(eigh) TELEGRAD_NAME(eigvals) TELEGRAD_NAME(eigvalsh)
TELEGRAD_NAME(householder_product) TELEGRAD_NAME(inv) TELEGRAD_NAME(inv_ex) TELEGRAD_NAME(ldl_factor)
TELEGRAD_NAME(ldl_factor_ex) TELEGRAD_NAME(ldl_solve) TELEGRAD_NAME(lu) TELEGRAD_NAME(lu_factor)
TELEGRAD_NAME(lu_factor_ex) TELEGRAD_NAME(lu_solve) TELEGRAD_NAME(matmul) TELEGRAD_NAME(matrix_exp)
TELEGRAD_NAME(matrix_norm) TELEGRAD_NAME(matrix_power) TELEGRAD_NAME(matrix_rank) TELEGRAD_NAME(norm)
TELEGRAD_NAME(pinv) TELEGRAD_NAME(qr) TELEGRAD_NAME(slogdet) TELEGRAD_NAME(solve) TELEGRAD_NAME(solve_ex)
TELEGRAD_NAME(solve_triangular) TELEGRAD_NAME(svd) TELEGRAD_NAME(svdvals) TELEGRAD_NAME(tensorinv)
TELEGRAD_NAME(tensorsolve) TELEGRAD_NAME(vander) TELEGRAD_NAME(vecdot) TELEGRAD_NAME(vector_norm)
#undef TELEGRAD_NAME
}  // namespace torch::linalg
#undef TELEGRAD_NAMED
