"""The house: which rooms stand, who may import what, and what no file of the project may carry."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tensorfold import __version__
from tests.command_pages import COMMANDS
from tests.tree import ROOMS, ROOT, files, imported, sources

TABLE = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = TABLE["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
FOLDERS = {*ROOMS, "tests", "docs", ".pkg", ".ci"}
# What the domain may take from the standard library: pieces that compute, none that reads or writes anything.
PURE = {
    "__future__", "array", "bisect", "codecs", "collections", "dataclasses", "enum", "fractions", "functools",
    "hashlib", "heapq", "itertools", "json", "math", "operator", "re", "struct", "typing", "zlib",
}  # fmt: skip
# The name a package is imported by, where it is not the name it is installed by.
IMPORTED_AS = {"dependency-injector": "dependency_injector"}
# Libraries that come with another one, always in the version it wants.
PART_OF = {"pydantic_core": "pydantic"}
# One import that breaks each contract, by its file and the words of the contract's name.
BREAKS = {
    "the application rests on the domain": ("domain/broken.py", "import tensorfold.application.errors"),
    "only the composition root names adapters": (
        "entrypoints/cli/broken.py",
        "import tensorfold.adapters.system.clock",
    ),
    "adapters know nothing of each other": ("adapters/system/broken.py", "import tensorfold.adapters.packages.demo"),
    "kernels know none of the other rooms": ("kernels/cpu/broken.py", "import tensorfold.domain.windows"),
    "only adapters call kernels": ("application/broken.py", "import tensorfold.kernels.cpu.product"),
    "the domain does no input or output": ("domain/families/broken.py", "import os"),
    "use no library but numpy": ("application/broken_again.py", "import jinja2"),
    "MLX stays in its adapter": ("adapters/tokenization/broken.py", "import mlx.core"),
    "the hub's library stays": ("adapters/packages/broken.py", "import huggingface_hub"),
    "torch and triton stay": ("adapters/mlx/broken.py", "import torch"),
    "web and request libraries stay": ("adapters/filesystem/broken.py", "import falcon"),
    "the injection library stays": ("entrypoints/http/broken.py", "import dependency_injector"),
}
REGISTRIES = re.compile(
    r"pypi\.(org|io)|python" r"hosted|hugging" r"face\.co|\bhf\.co\b|nvcr\.io|ghcr\.io|quay\.io|docker\.(io|com)"
    r"|npm" r"js|conda\.(org|io)|crates\.io|golang\.org|py" r"torch\.org"
)  # fmt: skip
MACHINE_PATHS = re.compile(
    r"(?<![\w.~$}/-])/(work|home|Users|root|mnt|tmp)" r"/[\w.-]+|[A-Z]:\\\\Users"
)  # fmt: skip


def test_only_the_rooms_stand_at_the_root() -> None:
    folders = {path.relative_to(ROOT).parts[0] for path in files() if path.parent != ROOT}
    assert folders == FOLDERS


def test_the_package_is_links_to_the_rooms_and_nothing_else() -> None:
    package = ROOT / ".pkg" / "tensorfold"
    links = {path.name: path.resolve() for path in package.iterdir() if path.is_symlink()}
    assert links == {room: ROOT / room for room in ROOMS}
    plain = {path.name for path in files() if path.parent == package}
    assert plain == {"__init__.py", "__main__.py", "py.typed"}


def test_every_folder_of_a_room_is_a_package() -> None:
    folders = {path.parent for path in files() if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in ROOMS}
    assert [folder for folder in folders if not (folder / "__init__.py").is_file()] == []


@pytest.mark.slow
def test_no_module_but_the_composition_root_names_an_adapter() -> None:
    named = {
        name
        for name, tree in sources("entrypoints", "application", "domain", "kernels", ".pkg")
        if any(module.startswith("tensorfold.adapters") for module in imported(tree))
    }
    assert named == {"entrypoints/container.py"}


@pytest.mark.slow
def test_no_room_is_imported_by_its_bare_name() -> None:
    bare = [
        (name, module)
        for name, tree in sources(*ROOMS, "tests", ".pkg")
        for module in imported(tree)
        if module.split(".")[0] in ROOMS
    ]
    assert bare == []


def test_the_domain_takes_only_pure_pieces_of_the_standard_library_and_numpy() -> None:
    taken = {
        (name, module)
        for name, tree in sources("domain")
        for module in imported(tree)
        if not module.startswith(("tensorfold.domain", "numpy", *(f"{pure}." for pure in PURE))) and module not in PURE
    }
    assert taken == set()


@pytest.mark.slow
def test_the_application_rests_on_the_domain_numpy_and_the_standard_library() -> None:
    allowed = {"tensorfold", "numpy", *sys.stdlib_module_names}
    assert {
        (name, module)
        for name, tree in sources("application")
        for module in imported(tree)
        if module.split(".")[0] not in allowed or module.startswith(("tensorfold.adapters", "tensorfold.kernels"))
    } == set()


@pytest.mark.slow
def test_every_library_imported_is_a_stated_dependency_and_every_stated_one_is_imported() -> None:
    used = {module.split(".")[0] for _, tree in sources(*ROOMS) for module in imported(tree)}
    used -= {"tensorfold", *sys.stdlib_module_names}
    used -= {distribution(line) for line in EXTRAS["cuda"]}
    stated = {IMPORTED_AS.get(name, name) for name in map(distribution, PROJECT["dependencies"])}
    assert {PART_OF.get(name, name) for name in used} == stated


@pytest.mark.slow
def test_commands_hand_the_environment_to_the_settings_and_nothing_else_reads_it() -> None:
    reading = {
        name
        for name, tree in sources(*ROOMS)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv")
    }
    # The renderer's process empties its own, but for the time zone.
    assert reading - {"adapters/tokenization/render_child.py"} == {
        "entrypoints/cli/bench_comparing.py",
        "entrypoints/cli/bench_measuring.py",
        "entrypoints/cli/info.py",
        "entrypoints/cli/models.py",
        "entrypoints/cli/pull.py",
        "entrypoints/cli/serve.py",
        "entrypoints/cli/update.py",
        "entrypoints/cli/verify.py",
    }


def test_only_the_cuda_extra_asks_for_torch_triton_and_nvrtc_within_bounds() -> None:
    assert set(EXTRAS) == {"cpu", "cuda", "test", "test-cuda"}
    assert {distribution(line) for line in EXTRAS["cuda"]} == {"torch", "triton", "nvidia-cuda-nvrtc"}
    assert all(re.search(r">=[\d.]+,<[\d.]+; sys_platform == 'linux'$", line) for line in EXTRAS["cuda"])
    elsewhere = (*PROJECT["dependencies"], *EXTRAS["cpu"], *EXTRAS["test"])
    assert not any(re.search("torch|triton|cuda|nvidia|transformers", line) for line in elsewhere)


def test_mlx_is_asked_for_by_platform_and_in_its_least_version() -> None:
    lines = [line for line in (*PROJECT["dependencies"], *EXTRAS["cpu"]) if distribution(line) == "mlx"]
    assert lines == ["mlx>=0.32.2; sys_platform == 'darwin'", "mlx[cpu]>=0.32.2; sys_platform == 'linux'"]


@pytest.mark.parametrize(
    "words",
    [("--help",), ("--version",), *((c, "--help") for c in COMMANDS)],
)
@pytest.mark.slow
def test_help_and_version_load_neither_mlx_nor_torch_nor_any_other_library(words: tuple[str, ...]) -> None:
    script = (
        "import sys\n"
        "from tensorfold.entrypoints.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit as ended: code = ended.code\n"
        "loaded = {name.split('.')[0] for name in sys.modules}\n"
        "heavy = {'mlx', 'torch', 'triton', 'falcon', 'pydantic', 'tokenizers', 'jinja2', 'huggingface_hub'}\n"
        "print('loaded:', *sorted(loaded & heavy))\n"
        "sys.exit(code)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "loaded:"), done.stderr


def test_the_version_is_the_same_wherever_it_is_written() -> None:
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    latest = re.search(r"^## (\d+\.\d+\.\d+)", changes, re.MULTILINE)
    assert latest is not None
    assert PROJECT["version"] == __version__ == latest.group(1)


@pytest.mark.parametrize("pattern", [REGISTRIES, MACHINE_PATHS], ids=["registry", "machine path"])
@pytest.mark.slow
def test_no_file_carries_a_registrys_host_name_or_a_machines_path(pattern: re.Pattern[str]) -> None:
    found = []
    for path in files():
        text = path.read_text(encoding="utf-8", errors="replace")
        found += [(path.relative_to(ROOT).as_posix(), match.group()) for match in pattern.finditer(text)]
    assert found == []


def test_the_patterns_see_what_they_look_for() -> None:
    assert REGISTRIES.search("https://hugging" + "face.co/owner/name")
    assert MACHINE_PATHS.search('open("/home' + '/somebody/model")')
    assert not MACHINE_PATHS.search("~/.cache, $HOME/work/x, /v1/models, a/tmp/b")


@pytest.mark.slow
def test_every_import_contract_breaks_when_its_rule_is_broken(tmp_path: Path) -> None:
    shutil.copytree(ROOT / ".pkg", tmp_path / ".pkg", symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for room in ROOMS:
        shutil.copytree(ROOT / room, tmp_path / room, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for file, line in BREAKS.values():
        (tmp_path / file).write_text(line + "\n", encoding="utf-8")
    linter = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]
    done = subprocess.run(
        linter,
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / ".pkg"), "COLUMNS": "400"},
        capture_output=True,
        text=True,
    )
    broken = [" ".join(line.split()) for line in done.stdout.splitlines() if "BROKEN" in line]
    contracts = [contract["name"] for contract in TABLE["tool"]["importlinter"]["contracts"]]
    assert len(BREAKS) == len(contracts) == len(broken), done.stdout
    assert all(any(words in name for name in contracts) for words in BREAKS)


def distribution(requirement: str) -> str:
    """The name a requirement begins with."""
    return re.split(r"[^A-Za-z0-9_.-]", requirement)[0]
