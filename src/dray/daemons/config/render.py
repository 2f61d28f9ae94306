"""The config as people read it: `drayd config show`, and the reference page."""

from __future__ import annotations

from typing import Any

import yaml

from dray.daemons.config.load import LoadedConfig
from dray.daemons.config.model import Settings
from dray.daemons.config.problems import FORMER, without_passwords
from dray.daemons.config.schema import FieldOfModel, fields, sections

ORIGIN_COLUMN = 44


def plain(settings: Settings) -> dict[str, Any]:
    """The settings as YAML would hold them, in the model's order, with secrets masked."""
    tree: dict[str, Any] = {}
    for field in fields():
        section = tree
        for name in field.path[:-1]:
            section = section.setdefault(name, {})
        section[field.path[-1]] = without_passwords(field.kind.render(_value(settings, field)))
    return tree


def show(loaded: LoadedConfig, with_origins: bool = False) -> str:
    """YAML that `--config` reads back to the same settings (but for the masked secrets)."""
    text: str = yaml.safe_dump(plain(loaded.settings), sort_keys=False, default_flow_style=False)
    return _with_origins(text, loaded) if with_origins else text


def reference() -> str:
    """`docs/configuration.md`. A test keeps the file in step with this."""
    parts = [REFERENCE_HEAD, _table(["data_dir"])]
    for name, section in sections().items():
        keys = [field.key for field in fields() if field.path[0] == name]
        parts.append(f"## {name}\n\n{section.__doc__}\n")
        parts.append(_table(keys))
    parts.append(FORMER_HEAD + "".join(f"| `{key}` | {now} |\n" for key, now in sorted(FORMER.items())))
    return "\n".join(parts)


def _value(settings: Settings, field: FieldOfModel) -> Any:
    value: Any = settings
    for name in field.path:
        value = getattr(value, name)
    return value


def _with_origins(text: str, loaded: LoadedConfig) -> str:
    """A comment behind every value, by walking the lines with the path their indentation tells."""
    lines = []
    path: list[str] = []
    for line in text.splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        path = [*path[:depth], line.strip().split(":", 1)[0]]
        if line.endswith(":"):
            lines.append(line)
            continue
        origin = loaded.origins.get(".".join(path), "default")
        lines.append(f"{line.ljust(ORIGIN_COLUMN)} # {origin}")
    return "\n".join(lines) + "\n"


def _table(keys: list[str]) -> str:
    rows = ["| key | default | allowed | |", "|---|---|---|---|"]
    by_key = {field.key: field for field in fields()}
    for key in keys:
        field = by_key[key]
        default = yaml.safe_dump(field.kind.render(field.default), default_flow_style=True)
        default = default.removesuffix("...\n").strip()
        rows.append(f"| `{key}` | `{default}` | {field.kind.allowed()} | {field.description} |")
    return "\n".join(rows) + "\n"


FORMER_HEAD = """## Settings that are gone

A config that still names one of them is no error in this release, but a line of warning at each start. In
the next release the name is unknown.

| key | now |
|---|---|
"""

REFERENCE_HEAD = """# Configuration

<!-- Generated from the model: `drayd config reference > docs/configuration.md`. -->

Every setting has a default, so a config file is optional. A value is taken from, later ones winning:

1. the defaults below,
2. the YAML file given with `--config FILE` (or by the variable `DRAY_CONFIG`),
3. the environment: `DRAY_`, then the key in capitals with two underscores for each dot:
   `DRAY_BROKER__LISTEN=127.0.0.1:9093`,
4. flags.

```yaml
# dray.yaml
broker:
  listen: 127.0.0.1:9093
limits:
  buffer_bytes: 512MiB
topics:
  defaults: {retention.ms: 86400000}
```

Sizes take `B`, `KiB`, `MiB`, `GiB`, `TiB` (powers of 1024) and `KB`, `MB`, `GB`, `TB` (powers of 1000);
a bare number is bytes. Durations always carry a unit: `us`, `ms`, `s`, `m`, `h` or `d`.
Relative paths are relative to the directory `drayd` is started in.

`drayd config show` prints the effective config, `--origin` where each value came from. A value that is
not allowed, an unknown key, and an unknown `DRAY_...` variable are one line on standard error and exit
code 2; nothing is started. (Variables that Kubernetes sets for a Service called `dray...` are ignored.)

## The process
"""
