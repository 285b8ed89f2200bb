"""Print docs/configuration.md: every field and flag, its default and what it does here, from the table that is obeyed.

``python -m pykubeproxy.config.reference > docs/configuration.md``. Text that no table holds (how the two ways of
configuring go together) is here and nowhere else.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence

from pykubeproxy.config.document import API_VERSION, KIND
from pykubeproxy.config.flags import FLAGS, Flag
from pykubeproxy.config.settings import BY_FLAG, OWN_BLOCK, SETTINGS, Setting, default_of

_INTRODUCTION = f"""\
# Configuration

<!-- Generated: python -m pykubeproxy.config.reference > docs/configuration.md -->

Everything that can be set, its default, and what it does in this program. There are two ways, and both are
kube-proxy's: a document (`--config FILE`, YAML or JSON, `apiVersion: {API_VERSION}`,
`kind: {KIND}`), or flags.

**With `--config` all other flags are ignored** (and named in one log line), except the logging flags,
`--hostname-override`, and the flags that kube-proxy does not have; those win over the document.

* Unknown fields (with the one that may have been meant) and fields given twice are logged, one line each, and the
  document loads. Where it does not load for another fault, they are told with it.
* `null` and absent are the same. Where the table says "zero is the default", that goes for `0s`, `0` and `""` in the
  document. Elsewhere an explicit zero is kept: `conntrack.maxPerCore: 0` leaves the limit alone.
* A value that cannot be used is an error. All of them are reported at once, those of flags with those of the document,
  each with its field and value, and the exit status is 2. What kube-proxy 1.36 refuses is refused here, with these
  exceptions: sections of other proxy modes are not judged, since nothing follows from them; blanks around the CIDRs of
  `clusterCIDR` are let pass, and so is any `showHiddenMetricsForVersion` that is a version. More is refused here: a
  `hostnameOverride` that no Node can have, and an interface name that no interface can have.
* Only the first document of a file counts, as for kube-proxy. Of a file in which another kind comes first (kubeadm's
  own configuration), the error says which document is the `{KIND}`.
* Durations are Go's: `30s`, `1h15m`, `500ms`.
* `bindAddress` of IPv6 moves the default addresses of both servers to `[::]:10256` and `[::1]:10249`.
* Values of other proxy modes are read, named in one log line, and written back by `--write-config-to` and `/configz`.
* The block `{OWN_BLOCK}` holds what kube-proxy does not have; kube-proxy itself only logs that it does not know it.
* A document made for `mode: nftables` without `nodePortAddresses` keeps that mode's default, `primary`.

A changed file is noticed when it is written, when another is renamed over it, and when kubelet swaps a ConfigMap. The
column "change" tells what a changed value takes: `live` is applied to the running daemon, `restart` makes it exit so
that kubelet starts it anew. A file that does not load changes nothing.
"""


def markdown() -> str:
    """Return the whole page."""
    fields = [setting for setting in SETTINGS if setting.document]
    shared = [setting for setting in fields if setting.has_effect and not setting.is_own]
    own = [setting for setting in fields if setting.is_own]
    unused = [setting for setting in fields if not setting.has_effect]
    bare = [flag for flag in FLAGS if not _has_field(flag)]
    parts = [
        _INTRODUCTION,
        "## Fields and flags of kube-proxy\n",
        _table(("field", "flag", "default", "change", "what it does here"), map(_setting_row, shared)),
        "## Fields and flags of our own\n",
        f"Fields in the block `{OWN_BLOCK}`; the flags apply with and without `--config`.\n",
        _table(("field", "flag", "default", "change", "what it does"), map(_setting_row, own)),
        "## Flags without a field\n",
        _table(("flag", "default", "what it does here"), map(_flag_row, bare)),
        "## Accepted and without effect\n",
        "Read and written back. A value other than the default is named in the log.\n",
        _table(("field", "flag", "default", "why"), (_setting_row(setting, with_reload=False) for setting in unused)),
    ]
    return "\n".join(parts)


def _has_field(flag: Flag) -> bool:
    setting = BY_FLAG.get(flag.name)
    return setting is not None and bool(setting.document)


def _setting_row(setting: Setting, *, with_reload: bool = True) -> Sequence[str]:
    remarks = [setting.effect]
    if choices := [f"`{choice}`" for choice in setting.choices if choice]:
        remarks.append(f"One of {', '.join(choices)}.")
    if setting.maximum is not None and setting.minimum is not None:
        remarks.append(f"From {setting.minimum:g} to {setting.maximum:g}.")
    if setting.zero_is_default and not setting.choices:
        remarks.append("Zero is the default.")
    change = [setting.reload.value] if with_reload else []
    flag = f"`{'-' if len(setting.flag) == 1 else '--'}{setting.flag}`" if setting.flag else ""
    return (f"`{setting.document}`", flag, _default(setting), *change, " ".join(remarks))


def _flag_row(flag: Flag) -> Sequence[str]:
    return (f"`--{flag.name}`", f"`{flag.default}`" if flag.default else "", flag.help)


def _default(setting: Setting) -> str:
    value = setting.kind.to_document(default_of(setting))
    text = value if isinstance(value, str) else json.dumps(value)
    shown = f"`{text}`" if value not in ("", None, [], {}) else ""
    # kube-proxy's flags of ipvs have other defaults than the fields.
    of_flag = next((flag.default for flag in FLAGS if flag.name == setting.flag), "")
    return f"{shown}, flag `{of_flag}`" if of_flag not in ("", text) else shown


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


if __name__ == "__main__":
    sys.stdout.write(markdown())
