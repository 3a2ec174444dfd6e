"""What was looked at and what was found, as figures and as the last line of the run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tests.benchmarks.crash.images import Image


@dataclass(slots=True)
class Tally:
    """Counts of a whole run. `violations` holds the first `most_shown` in words; `broken` counts all of them."""

    most_shown: int = 20
    kills: int = 0
    images: Counter[str] = field(default_factory=Counter)
    distinct: set[int] = field(default_factory=set)
    whole_moments: int = 0
    sampled_moments: int = 0
    images_with_loss: int = 0
    ids_lost: int = 0
    never_written: int = 0
    streams: int = 0
    tokens: int = 0
    copied: int = 0
    missed: int = 0
    differences: int = 0
    broken: int = 0
    violations: list[str] = field(default_factory=list)

    @property
    def all_images(self) -> int:
        """Every image opened, of a power cut or with a flipped bit."""
        return sum(self.images.values())

    def saw(self, image: Image, kind: str) -> None:
        """One image was opened."""
        self.images[kind] += 1
        self.distinct.add(hash(tuple(sorted((image.files or {}).items()))))

    def blame(self, where: str, wrong: list[str], image: Image | None = None) -> None:
        """Promises broken at one place, with the image that shows them."""
        self.broken += len(wrong)
        for sentence in wrong:
            if len(self.violations) < self.most_shown:
                shown = {} if image is None else {name: data.hex() for name, data in (image.files or {}).items()}
                self.violations.append(f"{where}: {sentence}" + (f"; image {shown}" if shown else ""))

    def line(self, seconds: float) -> str:
        """The run in one line."""
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(self.images.items()))
        return (
            f"recall_crash: {self.kills} kills, {self.all_images} images ({kinds}; {len(self.distinct)} distinct; "
            f"{self.whole_moments} moments with every image, {self.sampled_moments} sampled), {self.streams} streams "
            f"compared, {self.tokens} tokens ({self.copied} copied, {self.missed} copies missed), "
            f"{self.differences} differences, {self.images_with_loss} losses inside the window ({self.ids_lost} ids), "
            f"{self.never_written} ids never written, {self.broken} violations, {seconds:.0f} s"
        )
