"""Probability distributions, under the names of PyTorch's ``torch.distributions``.

Parameters given as tensors are checked only where ``validate_args=True`` says so: a check waits for the server.
"""

from __future__ import annotations

from . import constraints as constraints
from . import kl_of_families as kl_of_families
from . import transforms as transforms
from .bounded import ContinuousBernoulli as ContinuousBernoulli
from .bounded import VonMises as VonMises
from .categorical import Categorical as Categorical
from .categorical import Multinomial as Multinomial
from .categorical import OneHotCategorical as OneHotCategorical
from .categorical import OneHotCategoricalStraightThrough as OneHotCategoricalStraightThrough
from .composed import Independent as Independent
from .composed import MixtureSameFamily as MixtureSameFamily
from .composed import TransformedDistribution as TransformedDistribution
from .constraint_registry import biject_to as biject_to
from .constraint_registry import transform_to as transform_to
from .derived import HalfCauchy as HalfCauchy
from .derived import HalfNormal as HalfNormal
from .derived import InverseGamma as InverseGamma
from .derived import LogisticNormal as LogisticNormal
from .derived import LogNormal as LogNormal
from .derived import Pareto as Pareto
from .derived import RelaxedBernoulli as RelaxedBernoulli
from .derived import RelaxedOneHotCategorical as RelaxedOneHotCategorical
from .derived import Weibull as Weibull
from .discrete import Bernoulli as Bernoulli
from .discrete import Binomial as Binomial
from .discrete import Geometric as Geometric
from .discrete import NegativeBinomial as NegativeBinomial
from .discrete import Poisson as Poisson
from .distribution import Distribution as Distribution
from .distribution import ExponentialFamily as ExponentialFamily
from .gammas import Beta as Beta
from .gammas import Chi2 as Chi2
from .gammas import Dirichlet as Dirichlet
from .gammas import FisherSnedecor as FisherSnedecor
from .gammas import Gamma as Gamma
from .gammas import StudentT as StudentT
from .inverted import Gumbel as Gumbel
from .inverted import Kumaraswamy as Kumaraswamy
from .kl import kl_divergence as kl_divergence
from .kl import register_kl as register_kl
from .location_scale import Cauchy as Cauchy
from .location_scale import Exponential as Exponential
from .location_scale import GeneralizedPareto as GeneralizedPareto
from .location_scale import Laplace as Laplace
from .location_scale import Normal as Normal
from .location_scale import Uniform as Uniform
from .low_rank import LowRankMultivariateNormal as LowRankMultivariateNormal
from .multivariate import LKJCholesky as LKJCholesky
from .multivariate import MultivariateNormal as MultivariateNormal
from .multivariate import Wishart as Wishart
from .transforms import AbsTransform as AbsTransform
from .transforms import AffineTransform as AffineTransform
from .transforms import ComposeTransform as ComposeTransform
from .transforms import ExpTransform as ExpTransform
from .transforms import PowerTransform as PowerTransform
from .transforms import SigmoidTransform as SigmoidTransform
from .transforms import SoftplusTransform as SoftplusTransform
from .transforms import TanhTransform as TanhTransform
from .transforms import Transform as Transform
from .transforms import identity_transform as identity_transform
from .vector_transforms import CatTransform as CatTransform
from .vector_transforms import CorrCholeskyTransform as CorrCholeskyTransform
from .vector_transforms import CumulativeDistributionTransform as CumulativeDistributionTransform
from .vector_transforms import IndependentTransform as IndependentTransform
from .vector_transforms import LowerCholeskyTransform as LowerCholeskyTransform
from .vector_transforms import PositiveDefiniteTransform as PositiveDefiniteTransform
from .vector_transforms import ReshapeTransform as ReshapeTransform
from .vector_transforms import SoftmaxTransform as SoftmaxTransform
from .vector_transforms import StackTransform as StackTransform
from .vector_transforms import StickBreakingTransform as StickBreakingTransform
