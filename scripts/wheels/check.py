"""A wheel is looked into before it counts: its name, its bytes, its modules, and the code for each GPU."""

from __future__ import annotations

import json
import re
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from email.parser import Parser
from pathlib import Path
from tempfile import TemporaryDirectory

from packaging.tags import Tag, parse_tag
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from scripts import command
from scripts.errors import WheelsRefused
from scripts.progress import say
from scripts.wheels import manifest
from scripts.wheels.sets import Target, Wheel

CUBIN = re.compile(r"\.sm_(\d+)(\d)[a-z]*\.cubin")
PTX = re.compile(r"\.sm_(\d+)(\d)[a-z]*\.ptx")
LOOK_SECONDS = 900.0
# The module alone, without its package: that would import half of the environment. torch first, because
# extensions of torch find its libraries only where it was loaded.
IMPORT = """
import importlib.util, sys
if importlib.util.find_spec("torch"):
    import torch
spec = importlib.util.spec_from_file_location(sys.argv[1], sys.argv[2])
importlib.util.module_from_spec(spec)
"""
NO_DRIVER = "libcuda.so.1: cannot open shared object file"


@dataclass(frozen=True)
class Tools:
    """What looks into wheels: a Python that has auditwheel, and cuobjdump."""

    python: Path
    cuobjdump: Path


@dataclass(frozen=True)
class Checked:
    """What is known of a wheel that passed.

    Attributes:
        sha256, size: of its bytes then.
        architectures: of the GPU code, as in an arch list.
        level: the oldest platform that has its versioned symbols.
        imported: what came of loading its modules.
        remarks: what is not wrong and still worth a look.
    """

    name: str
    sha256: str
    size: int
    version: str
    architectures: list[str]
    level: str
    imported: str
    remarks: list[str]

    @property
    def entry(self) -> manifest.Entry:
        """Its line of MANIFEST."""
        return manifest.Entry(self.name, self.sha256, self.size, self.level)


@dataclass(frozen=True)
class Kept:
    """A wheel in the cache, with what was found when it was checked."""

    path: Path
    checked: Checked


def keep(made: Path, folder: Path, wheel: Wheel, target: Target, tools: Tools, python: Path | None) -> None:
    """Check the one wheel of a project among those that were made, and move it to the folder.

    Raises:
        WheelsRefused: see only_wheel and check.
    """
    path = only_wheel(made, wheel)
    checked = check(path, wheel, target, tools, python)
    code = f"GPU code for {';'.join(checked.architectures)}"
    say("; ".join([f"    {path.name}: {code}", checked.level, checked.imported, *checked.remarks]))
    path.rename(folder / path.name)
    (folder / f"{wheel.name}.json").write_text(json.dumps(asdict(checked), indent=2))


def kept(folder: Path, wheel: Wheel) -> Kept:
    """What `keep` left in a folder."""
    checked = Checked(**json.loads((folder / f"{wheel.name}.json").read_text()))
    return Kept(folder / checked.name, checked)


def only_wheel(folder: Path, wheel: Wheel) -> Path:
    """The one wheel of that project in the folder.

    Raises:
        WheelsRefused: there is none, or more than one.
    """
    stem = canonicalize_name(wheel.name).replace("-", "_")
    found = sorted(path.name for path in folder.glob("*.whl") if path.name.lower().startswith(f"{stem}-"))
    if len(found) != 1:
        raise WheelsRefused(f"{folder} has {len(found)} wheels of {wheel.name}, not one: {found}.")
    return folder / found[0]


def check(path: Path, wheel: Wheel, target: Target, tools: Tools, python: Path | None) -> Checked:
    """Everything that is checked, in the order of what it costs.

    Args:
        python: of an environment in which the modules can be loaded; None: they are not.

    Raises:
        WheelsRefused: the wheel is damaged, or not the one that was to be made.
    """
    version = named(path, wheel, target)
    with TemporaryDirectory() as folder:
        modules = unpacked(path, wheel, version, Path(folder))
        found = gpu_code(modules, tools.cuobjdump)
        same_architectures(path.name, found, target.key["TORCH_CUDA_ARCH_LIST"])
        imported = loaded(modules, wheel, python) if python else "not tried: no environment of its own here"
    entry = manifest.entry(path)
    return Checked(
        name=entry.name,
        sha256=entry.sha256,
        size=entry.size,
        version=version,
        architectures=found,
        level=level(path, tools),
        imported=imported,
        remarks=remarks(version),
    )


def named(path: Path, wheel: Wheel, target: Target) -> str:
    """The version in the name of the wheel, which is of the project, the pins and the platform.

    Raises:
        WheelsRefused: it is of another.
    """
    try:
        project, version, _, tags = parse_wheel_filename(path.name)
    except InvalidWheelFilename as wrong:
        raise WheelsRefused(f"{path.name} is not a wheel's name: {wrong}.") from wrong
    if project != canonicalize_name(wheel.name):
        raise WheelsRefused(f"{path.name} is a wheel of {project}, not of {wheel.name}.")
    if not any(_fits(tag, target.key["PY"], target.values["PLATFORM"]) for tag in tags):
        raise WheelsRefused(
            f"{path.name} is for {' '.join(sorted(map(str, tags)))}, "
            f"not for {target.key['PY']} on {target.values['PLATFORM']}."
        )
    if wheel.version and version.public != target.values[wheel.version]:
        raise WheelsRefused(f"{path.name} is not version {target.values[wheel.version]} ({wheel.version}).")
    if wheel.stamped:
        _from_commit(path.name, str(version), target.values[wheel.commit])
    return str(version)


def unpacked(path: Path, wheel: Wheel, version: str, folder: Path) -> list[Path]:
    """The extension modules of a wheel whose every member has its CRC, unpacked into the folder.

    Raises:
        WheelsRefused: a damaged archive; another name, version or tag inside than outside; a module missing.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            if damaged := archive.testzip():
                raise WheelsRefused(f"{path.name} is damaged: {damaged} does not have its CRC.")
            _same_inside(path.name, archive, wheel, version)
            modules = [name for name in archive.namelist() if name.endswith(".so")]
            archive.extractall(folder, modules)
    except (zipfile.BadZipFile, zlib.error, EOFError) as damage:
        raise WheelsRefused(f"{path.name} is damaged: {damage}.") from damage
    if missing := [name for name in wheel.extensions if not _module(name, modules)]:
        raise WheelsRefused(
            f"{path.name} lacks the extension {', '.join(missing)}; it has {modules or 'none'}."
        )
    return [folder / name for name in modules]


def gpu_code(modules: Iterable[Path], cuobjdump: Path) -> list[str]:
    """The architectures of the GPU code in these modules, as in an arch list; `9.0a` counts as 9.0.

    Raises:
        WheelsRefused: cuobjdump cannot read one.
    """
    found: set[str] = set()
    for module in modules:
        for option, pattern, suffix in (("--list-elf", CUBIN, ""), ("--list-ptx", PTX, "+PTX")):
            result = command.run([cuobjdump, option, module], timeout=LOOK_SECONDS, ok=None)
            if result.code and "does not contain device code" not in result.stdout + result.stderr:
                raise WheelsRefused(f"cuobjdump cannot read {module.name}.", detail=result.stderr)
            found |= {f"{major}.{minor}{suffix}" for major, minor in pattern.findall(result.stdout)}
    return manifest.architectures(";".join(found))


def same_architectures(name: str, found: list[str], arch_list: str) -> None:
    """The code is for each architecture of the list and for no other; PTX beyond the list is no harm.

    Raises:
        WheelsRefused: it is not.
    """
    wanted = {re.sub("[a-z]", "", word.removesuffix("+PTX")) for word in manifest.architectures(arch_list)}
    ptx = {word for word in manifest.architectures(arch_list) if word.endswith("+PTX")}
    code = {word for word in found if not word.endswith("+PTX")}
    if code != wanted or not ptx <= set(found):
        raise WheelsRefused(f"{name} has GPU code for {';'.join(found) or 'none'}, not for {arch_list}.")


def loaded(modules: Iterable[Path], wheel: Wheel, python: Path) -> str:
    """Load the set's modules in the environment that they were compiled in; says what came of it.

    Without a GPU's driver some cannot be loaded, and that alone is no fault.

    Raises:
        WheelsRefused: one does not load: an undefined symbol is a wheel for another torch or compiler.
    """
    without = []
    for name in wheel.extensions:
        path = next(path for path in modules if _module(name, [path.as_posix()]))
        words: command.Argv = [python, "-c", IMPORT, name.rpartition("/")[2], path]
        result = command.run(words, timeout=LOOK_SECONDS, ok=None, env={"PYTHONPATH": None})
        if result.code and NO_DRIVER not in result.stderr:
            last = result.stderr.strip().splitlines()[-1:]
            raise WheelsRefused(f"{path.name} does not load.", detail="\n".join(last))
        without += [name] * bool(result.code)
    return f"needs a GPU's driver: {', '.join(without)}" if without else "all loaded"


def level(path: Path, tools: Tools) -> str:
    """The oldest platform whose glibc and libstdc++ have the versioned symbols that the wheel asks for."""
    words: command.Argv = [tools.python, "-m", "auditwheel", "show", "--json", path]
    tag: str = json.loads(command.output(words, timeout=LOOK_SECONDS))["sym_tag"]
    return tag


def remarks(version: str) -> list[str]:
    """What is not wrong and still worth a look."""
    changed = re.search(r"\.d\d{8}", version)
    return [f"the version says {changed[0]}: its source was changed after the commit"] if changed else []


def _fits(tag: Tag, python: str, platform: str) -> bool:
    machine = platform.removeprefix("linux_")
    linux = re.fullmatch(rf"(linux|manylinux\w*)_{machine}", tag.platform)
    stable = tag.abi == "abi3" and int(tag.interpreter[3:] or 0) <= int(python[3:])
    return bool(linux) and ((tag.interpreter, tag.abi) == (python, python) or stable)


def _from_commit(name: str, version: str, commit: str) -> None:
    stamp = re.search(r"(?:\+|\.)g([0-9a-f]{7,40})(?:\.|$)", version)
    if not stamp or not commit.startswith(stamp[1]):
        raise WheelsRefused(f"{name} does not say that it is from commit {commit}.")


def _same_inside(name: str, archive: zipfile.ZipFile, wheel: Wheel, version: str) -> None:
    folder = next((each for each in archive.namelist() if each.endswith(".dist-info/METADATA")), "")
    if not folder:
        raise WheelsRefused(f"{name} has no METADATA.")
    metadata = Parser().parsestr(archive.read(folder).decode(), headersonly=True)
    inside = canonicalize_name(metadata["Name"]), metadata["Version"]
    if inside != (canonicalize_name(wheel.name), version):
        raise WheelsRefused(f"{name} is {' '.join(inside)} inside.")
    about = Parser().parsestr(archive.read(folder.replace("METADATA", "WHEEL")).decode())
    tags = {str(tag) for line in about.get_all("Tag", []) for tag in parse_tag(line)}
    if tags != {str(tag) for tag in parse_wheel_filename(name)[3]}:
        raise WheelsRefused(f"{name} has the tags {' '.join(sorted(tags)) or 'of no platform'} inside.")


def _module(name: str, paths: Iterable[str]) -> str:
    """The path of a module by its name without an ending: of this Python, of any, or of none."""
    return next((path for path in paths if re.search(rf"(^|/){re.escape(name)}(\.[\w-]+)*\.so$", path)), "")
