"""What a restore input of ours may look like, word for word. Anything else in one would be somebody else's words."""

import re

ADDRESS = r"(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9a-f:]*:[0-9a-f:.]*)"
NET = rf"{ADDRESS}(?:/\d{{1,3}})?"
PORT = r"[1-9]\d{0,4}"
CHAIN = r"[A-Z][A-Z0-9-]{0,27}"
MARK = r"0x[0-9a-f]{1,8}/0x[0-9a-f]{1,8}"
MASK = r"(?:255\.255\.255\.255|ffff(?::ffff){7})"
INTERFACE = r"[^\s\"'\\/!]{1,15}\+?"
TARGET = (
    rf"(?:REJECT --reject-with icmp6?-port-unreachable|DNAT --to-destination (?:{ADDRESS}|\[{ADDRESS}\]):{PORT}"
    rf"|MARK --set-xmark {MARK}|MASQUERADE(?: --random-fully)?|{CHAIN})"
)
PART = (
    rf"(?:(?:! )?-s {NET}|(?:! )?-d {NET}|(?:! )?-i {INTERFACE}|-p (?:tcp|udp|sctp)"
    r'|-m comment --comment "[ -!#-\[\]-~]{0,255}"'
    rf"|-m (?:tcp|udp|sctp)(?: --dport {PORT})?"
    r"|-m conntrack (?:! )?--ctstate [A-Z,]+|-m addrtype --(?:src|dst)-type LOCAL"
    rf"|-m mark (?:! )?--mark {MARK}"
    r"|-m statistic --mode random --probability [01]\.\d{11}"
    rf"|-m recent --set --name KUBE-SEP-[A-Z2-7]{{16}} --mask {MASK} --rsource"
    rf"|-m recent --rcheck --seconds \d{{1,6}} --reap --name KUBE-SEP-[A-Z2-7]{{16}} --mask {MASK} --rsource"
    r"|-m nfacct --nfacct-name  [a-z_]+)"
)
RULE = rf"(?:{PART} )*(?:-j {TARGET}|-m comment --comment \"[ -!#-\[\]-~]{{0,255}}\")"
LINE = re.compile(
    rf"\*(?:mangle|filter|nat)|:{CHAIN} - \[0:0\]|-A {CHAIN} {RULE}|-I {CHAIN} 1 {RULE}|-X {CHAIN}|COMMIT"
)


def strange_lines(document: str) -> list[str]:
    """Return the lines that are not ours."""
    assert document.endswith("\n") or not document
    return [line for line in document.split("\n")[:-1] if not LINE.fullmatch(line)]
