"""The shape of what a registry sends: a manifest that somebody made by hand must not surprise later."""

from __future__ import annotations

from typing import Any

from scripts.errors import RegistryError

# A key that ends with ! must be there; the key `str` stands for any; what is null is not there.
# OCI image specification, "Image Manifest", "Image Index", "Image Configuration".
MANIFEST = {
    "config!": {"digest!": str},
    "layers!": [{"digest!": str, "size!": int, "mediaType!": str}],
    "annotations": {str: str},
}
PLATFORM = {"os": str, "architecture": str, "variant": str}
INDEX = {
    "manifests!": [{"digest!": str, "mediaType": str, "platform": PLATFORM, "annotations": {str: str}}],
    "annotations": {str: str},
}
CONFIG = {
    **PLATFORM,
    "created": str,
    "config": {"Env": [str], "Cmd": [str], "Entrypoint": [str], "Labels": {str: str}},
    "rootfs": {"diff_ids": [str]},
    "history": [{"created_by": str, "comment": str}],
}
WORDS = {str: "text", int: "a size", list: "a list", dict: "an object"}


def check(what: str, value: object, shape: Any) -> None:  # noqa: ANN401
    """Compare a value with a shape.

    Args:
        what: whose it is, for the sentence.

    Raises:
        RegistryError: names the first place that is wrong.
    """
    if wrong := _wrong(value, shape, ""):
        raise RegistryError(
            f"{what} is malformed: {wrong}.", "find what wrote it, and have it written again."
        )


def _wrong(value: object, shape: Any, where: str) -> str:  # noqa: ANN401
    kind = shape if isinstance(shape, type) else type(shape)
    if not isinstance(value, kind) or (kind is int and (isinstance(value, bool) or value < 0)):  # type: ignore[operator]
        return f"{where or 'it'} is not {WORDS[kind]}"
    if isinstance(shape, list) and isinstance(value, list):
        inner = (_wrong(item, shape[0], f"{where}[{number}]") for number, item in enumerate(value))
        return next(filter(None, inner), "")
    if isinstance(shape, dict) and isinstance(value, dict):
        if str in shape:
            inner = (_wrong(item, shape[str], f"{where}.{key}".lstrip(".")) for key, item in value.items())
        else:
            inner = (_wrong_member(value, key, part, where) for key, part in shape.items())
        return next(filter(None, inner), "")
    return ""


def _wrong_member(value: dict[str, object], key: str, shape: Any, where: str) -> str:  # noqa: ANN401
    name = key.removesuffix("!")
    if value.get(name) is None:
        return f"{where}.{name}".lstrip(".") + " is missing" if key.endswith("!") else ""
    return _wrong(value[name], shape, f"{where}.{name}".lstrip("."))
