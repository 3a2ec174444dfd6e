"""TensorFold: an exact LLM server. The rooms below are described in docs/architecture.md."""

__version__ = "0.1.0"
