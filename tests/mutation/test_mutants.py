"""What the mutation tool plants, on a module small enough to list it."""

import ast

from tests.mutation.mutants import functions, mutants

SOURCE = '''
"""A module."""
LEFT_ALONE = 7

class Box:
    """A box."""

    size: int = 3

    def name(self) -> str:
        """Nothing to change but the result."""
        return self.label

    def fits(self, things: list[int], spare: int = 1) -> bool:
        if not things and self.open:
            raise ValueError(f"no {1} thing")
        self.seen = things[1:]
        while self.open:
            break
        return len(things) + spare <= self.size or True
'''

PLANTED = [
    "Box: size: int = 3 -> size: int = 4",
    "Box: size: int = 3 -> size: int = 2",
    "Box.name: return self.label -> return None",
    "Box.fits: self, things: list[int], spare: int=1 -> self, things: list[int], spare: int=2",
    "Box.fits: self, things: list[int], spare: int=1 -> self, things: list[int], spare: int=0",
    "Box.fits: not things and self.open -> not (not things and self.open)",
    "Box.fits: not things and self.open -> not things or self.open",
    "Box.fits: not things -> things",
    "Box.fits: self.seen = things[1:] -> dropped",
    "Box.fits: things[1:] -> things[1 + 1:]",
    "Box.fits: 1: -> 2:",
    "Box.fits: 1: -> 0:",
    "Box.fits: self.open -> not self.open",
    "Box.fits: break -> dropped",
    "Box.fits: len(things) + spare <= self.size or True -> len(things) + spare <= self.size and True",
    "Box.fits: len(things) + spare <= self.size -> len(things) + spare < self.size",
    "Box.fits: len(things) + spare <= self.size -> len(things) + spare > self.size",
    "Box.fits: len(things) + spare -> len(things) - spare",
    "Box.fits: len(things) + spare <= self.size or True -> len(things) + spare <= self.size or False",
]


def test_every_kind_of_fault_is_planted_once_at_each_place() -> None:
    made = list(mutants("box.py", SOURCE))
    assert [m.name for m in made] == [f"box.py:{planted}" for planted in PLANTED]
    assert len({m.source for m in made} - {ast.unparse(ast.parse(SOURCE))}) == len(PLANTED)
    assert {m.function for m in made} == {"Box", *functions(SOURCE)} == {"Box", "Box.name", "Box.fits"}


def test_equal_faults_of_one_function_are_told_apart_by_number() -> None:
    made = mutants("sum.py", "def f(x, y):\n    return g(x + y, x + y)\n")
    assert [m.change for m in made] == ["x + y -> x - y", "x + y -> x - y (2)"]
