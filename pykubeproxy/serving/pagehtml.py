"""Markup of the status page: elements that escape whatever they hold, the style, and the frame of every page.

It exists so that nothing an API server, a label or a pod's name can say ever becomes markup: text is a ``str`` and gets
escaped, and the only way to a ``Markup`` is ``tag``. It must not know what the pages are about.

No script, no picture and no font is loaded; the policy sent with each page forbids it.
"""

from __future__ import annotations

import base64
import hashlib
import html
import time
from collections.abc import Iterable
from http import HTTPStatus

from pykubeproxy.serving.message import NOSNIFF, Response

HTML = "text/html; charset=utf-8"


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


Child = str | int | None | Iterable["Child"]
"""Markup stays, other text is escaped, None is nothing."""

_VOID = frozenset(("br", "input", "link", "meta"))


def tag(element: str, /, *children: Child, **attributes: str | float | None) -> Markup:
    """Return an element. ``class_`` is class, ``view_box`` viewBox, ``data_x`` data-x; None leaves an attribute out."""
    given = "".join(
        f' {_attribute(key)}="{html.escape(str(value))}"' for key, value in attributes.items() if value is not None
    )
    if element in _VOID:
        return Markup(f"<{element}{given}>")
    return Markup(f"<{element}{given}>{join(children)}</{element}>")


def join(children: Child) -> Markup:
    """Put children behind one another."""
    if children is None:
        return Markup()
    if isinstance(children, Markup):
        return children
    if isinstance(children, str | int):
        return Markup(html.escape(str(children)))
    return Markup("".join(map(join, children)))


def _attribute(key: str) -> str:
    if key == "view_box":
        return "viewBox"
    return key.rstrip("_").replace("_", "-")


def code(text: Child) -> Markup:
    """Return text in the fixed font."""
    return tag("code", text)


def badge(kind: str, text: Child) -> Markup:
    """Return a small label; ``kind`` is good, warn, bad or dim."""
    return tag("span", text, class_=f"badge {kind}")


def facts(pairs: Iterable[tuple[str, Child]]) -> Markup:
    """Return a list of names and values."""
    return tag("dl", [(tag("dt", name), tag("dd", value)) for name, value in pairs])


def table(headers: Iterable[str], rows: Iterable[Iterable[Child]], class_: str = "") -> Markup:
    """Return a table; on a narrow screen each row becomes a card, which is what the labels are for."""
    names = list(headers)
    head = tag("thead", tag("tr", [tag("th", name) for name in names]))
    body = [
        tag("tr", [tag("td", cell, data_label=name) for name, cell in zip(names, row, strict=True)]) for row in rows
    ]
    return tag("table", head, tag("tbody", body), class_=class_ or None)


def card(title: Child, *children: Child, class_: str = "") -> Markup:
    """Return a box with a title."""
    return tag("section", tag("h2", title), children, class_=f"card {class_}".rstrip())


def page(title: str, *body: Child, status: int = HTTPStatus.OK) -> Response:
    """Return a whole page."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("link", rel="icon", href="data:,"),
        tag("title", title),
        Markup(f"<style>{STYLE}</style>"),
    )
    text = "<!doctype html>\n" + tag("html", head, tag("body", body), lang="en")
    return Response(status, text.encode("utf-8", "replace"), HTML, _HEADERS)


def ago(seconds: float) -> str:
    """Return ``12 s``, ``3 min``, ``5 h``, ``2 d``."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def duration(seconds: float) -> str:
    """Return ``3 ms``, ``1.24 s``."""
    return f"{seconds * 1000:.0f} ms" if seconds < 0.9995 else f"{seconds:.2f} s"


def moment(wall: float) -> str:
    """Return a wall clock time in UTC."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(wall))


def number(count: int) -> str:
    """Return a count with thin spaces between the thousands."""
    return f"{count:,}".replace(",", "\u202f")


def plural(count: int, noun: str) -> str:
    """Return ``1 service`` or ``12 services``."""
    return f"{number(count)} {noun}{'' if count == 1 else 's'}"


STYLE = """
:root{color-scheme:light dark;--page:#f6f7f9;--card:#fff;--ink:#1b2430;--dim:#5c6875;--line:#d9dee5;--link:#1456a8;
--good:#19703b;--good-bg:#e0f3e6;--warn:#855300;--warn-bg:#fcefd2;--bad:#a3201d;--bad-bg:#fde4e2;--dim-bg:#eaedf1;
--bar:#4a7fc1;--full:#9aa8b8;--share:#d5e4f7}
@media (prefers-color-scheme:dark){:root{--page:#12161c;--card:#1b2129;--ink:#e4e9ef;--dim:#9aa6b4;--line:#333c47;
--link:#86b8f5;--good:#7fd6a0;--good-bg:#173524;--warn:#f0c46c;--warn-bg:#3a2e12;--bad:#ff9d97;--bad-bg:#43201f;
--dim-bg:#29313b;--bar:#5f95d8;--full:#667485;--share:#24405f}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1160px;padding:16px;background:var(--page);color:var(--ink);
font:15px/1.45 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","DejaVu Sans",sans-serif}
a{color:var(--link);text-decoration:none}
a:hover,a:focus{text-decoration:underline}
h1{font-size:21px;margin:0;overflow-wrap:anywhere}
h2{font-size:15px;margin:0 0 8px}
h3{font-size:14px;margin:16px 0 6px}
code{font:12.5px/1.4 ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;overflow-wrap:anywhere}
header{display:flex;flex-wrap:wrap;gap:4px 12px;align-items:center;margin-bottom:14px}
header p,nav{margin:0;color:var(--dim);flex-basis:100%}
.cards{display:grid;gap:12px;align-items:start;grid-template-columns:repeat(auto-fit,minmax(min(100%,330px),1fr));margin-bottom:12px}
.card{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:12px 14px;margin-bottom:12px;
min-width:0}
.cards .card{margin:0}
.cards svg{margin-top:12px}
.stack{display:grid;gap:12px;align-content:start;min-width:0}
.word{white-space:nowrap;margin-right:6px}
.badge{display:inline-block;padding:1px 8px;border-radius:10px;font-size:12.5px;white-space:nowrap}
.good{color:var(--good);background:var(--good-bg)}
.warn{color:var(--warn);background:var(--warn-bg)}
.bad{color:var(--bad);background:var(--bad-bg)}
.dim{color:var(--dim);background:var(--dim-bg)}
.note{color:var(--dim);margin:6px 0 0;font-size:13.5px}
dl{display:grid;grid-template-columns:auto 1fr;gap:3px 14px;margin:0}
dt{color:var(--dim)}
dd{margin:0;min-width:0;overflow-wrap:anywhere}
table{border-collapse:collapse;width:100%}
th{text-align:left;font-weight:600;color:var(--dim);font-size:13px;padding:4px 10px 4px 0}
td{padding:5px 10px 5px 0;border-top:1px solid var(--line);vertical-align:top;overflow-wrap:anywhere}
tbody tr:hover{background:color-mix(in srgb,var(--dim-bg) 45%,transparent)}
ul{margin:0;padding-left:18px}
li{margin:3px 0;overflow-wrap:anywhere}
form{display:flex;gap:8px;margin:0 0 10px}
input,button{font:inherit;color:inherit;background:var(--page);border:1px solid var(--line);border-radius:6px;
padding:6px 10px}
input{flex:1;min-width:0}
button{cursor:pointer}
.pages{display:flex;flex-wrap:wrap;justify-content:space-between;gap:8px;margin-top:10px;color:var(--dim)}
.filters{display:flex;flex-wrap:wrap;gap:4px 16px;margin-bottom:10px}
.filters b{color:var(--ink)}
svg{display:block;max-width:100%;height:auto}
svg text{fill:var(--ink);font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}
svg .small{font-size:11px;fill:var(--dim)}
svg .box{fill:var(--card);stroke:var(--line)}
svg .address{fill:var(--dim-bg);stroke:var(--line)}
svg .endpoint{fill:var(--card);stroke:var(--good)}
svg .end{fill:var(--bad-bg);stroke:var(--bad)}
svg .missing{fill:var(--warn-bg);stroke:var(--warn)}
svg .share{fill:var(--share)}
svg .hollow{fill:none}
svg .wire{fill:none;stroke:var(--full)}
svg .part{fill:var(--bar)}
svg .full{fill:var(--full)}
svg .healed{fill:var(--warn)}
svg .refused{fill:var(--bad)}
svg .base{stroke:var(--line)}
.key{white-space:nowrap;margin-right:10px}
.key::before{content:"";display:inline-block;width:9px;height:9px;margin-right:5px;border-radius:2px}
.key.part::before{background:var(--bar)}
.key.full::before{background:var(--full)}
.key.healed::before{background:var(--warn)}
.key.refused::before{background:var(--bad)}
.narrow{display:none}
details summary{cursor:pointer;color:var(--link)}
pre{overflow-x:auto;margin:8px 0 0;
font:12px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}
@media (max-width:760px){
body{padding:10px}
.wide{display:none}
.narrow{display:block}
thead{display:none}
table,tbody,tr,td{display:block}
tr{border-top:1px solid var(--line);padding:8px 0}
td{border:0;padding:1px 0 1px 104px;min-height:22px;position:relative}
td::before{content:attr(data-label);position:absolute;left:0;width:98px;color:var(--dim);font-size:13px}
td:empty{display:none}
.list tr{display:flex;flex-wrap:wrap;align-items:baseline;gap:2px 10px}
.list td{padding:0;min-height:0}
.list td::before{display:none}
.list td:first-child{flex:1 1 calc(62% - 10px)}
.list td:nth-child(4){flex:0 1 38%;text-align:right}
.list td:nth-child(2){order:2;color:var(--dim)}
.list td:nth-child(3){order:3;flex:1 1 40%}
.list td:nth-child(5){order:4;color:var(--dim)}
.list td:nth-child(5)::after{content:" connections"}
}
""".strip()

_STYLE_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; img-src data:; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
_HEADERS = (
    NOSNIFF,
    ("Cache-Control", "no-store"),
    ("Content-Security-Policy", _POLICY),
    ("Referrer-Policy", "no-referrer"),
)
