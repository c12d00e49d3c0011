"""The records of an experiment's settings and measures, which TensorBoard compares between experiments."""

from __future__ import annotations

from typing import Any

from google.protobuf import struct_pb2
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.plugins.hparams import api_pb2, metadata
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionEndInfo, SessionStartInfo

from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError

from .arrays import number_of


def hparams(hparam_dict: Any = None, metric_dict: Any = None, hparam_domain_discrete: Any = None) -> tuple[Any, ...]:
    """Return three records: what the settings and measures are called, the settings, and that the experiment ended.

    Raises ArgumentTypeError for what is no dictionary.
    """
    domains = hparam_domain_discrete or {}
    for name, given in (
        ("hparam_dict", hparam_dict), ("metric_dict", metric_dict), ("hparam_domain_discrete", domains)
    ):  # fmt: skip
        if not isinstance(given, dict):
            raise ArgumentTypeError(f"parameter: {name} should be a dictionary, nothing logged.")
    _check_domains(hparam_dict, domains)
    start, described = SessionStartInfo(), []
    for name, value in hparam_dict.items():
        if value is None:
            continue
        kind, value = _kind_of(name, value)
        setattr(start.hparams[name], f"{kind[0]}_value", value)
        values = [struct_pb2.Value(**{f"{kind[0]}_value": choice}) for choice in domains.get(name, ())]
        domain = struct_pb2.ListValue(values=values) if values else None
        described.append(api_pb2.HParamInfo(name=name, type=kind[1], domain_discrete=domain))
    measures = [api_pb2.MetricInfo(name=api_pb2.MetricName(tag=name)) for name in metric_dict]
    experiment = api_pb2.Experiment(hparam_infos=described, metric_infos=measures)
    return (
        _record(metadata.EXPERIMENT_TAG, experiment=experiment),
        _record(metadata.SESSION_START_INFO_TAG, session_start_info=start),
        _record(metadata.SESSION_END_INFO_TAG, session_end_info=SessionEndInfo(status=api_pb2.STATUS_SUCCESS)),
    )


def _check_domains(given: dict[str, Any], domains: dict[str, Any]) -> None:
    for name, choices in domains.items():
        fits = name in given and isinstance(choices, list)
        if not fits or not all(isinstance(choice, type(given[name])) for choice in choices):
            raise ArgumentTypeError(
                f"parameter: hparam_domain_discrete[{name}] should be a list of same type as hparam_dict[{name}]."
            )


def _kind_of(name: str, value: Any) -> tuple[tuple[str, Any], Any]:
    """Return how a setting is kept, with its value; truth values are kept as numbers, as PyTorch keeps them."""
    if isinstance(value, str):
        return ("string", api_pb2.DATA_TYPE_STRING), value
    if isinstance(value, (int, float, Tensor)):
        return ("number", api_pb2.DATA_TYPE_FLOAT64), number_of(value)
    raise ArgumentError(f"value should be one of int, float, str, bool, or torch.Tensor, got {value!r} for {name}")


def _record(tag: str, **content: Any) -> Any:
    data = HParamsPluginData(version=metadata.PLUGIN_DATA_VERSION, **content)
    plugin = SummaryMetadata.PluginData(plugin_name=metadata.PLUGIN_NAME, content=data.SerializeToString())
    return Summary(value=[Summary.Value(tag=tag, metadata=SummaryMetadata(plugin_data=plugin))])
