"""The base of models that add time or faults to another one."""

from tensorfold.application.wrapped_model import WrappedModel as WrappedModel
