"""Templates: what is prose, what is typed, what is waited for, and what may differ from run to run."""

import pytest

from e2e.learn.__main__ import DOCS, HERE, LANGUAGES
from e2e.learn.template import Typed, Wait, parse, render, settled, things_to_do

TEXT = """\
# Title

```run curl
echo one
echo two
```
<!-- await default/web 3 -->

```console
# not run
```

```mermaid node
draw
```
"""


def test_things_to_do_in_order():
    assert things_to_do(parse(TEXT)) == [
        Typed("run", "curl", ("echo one", "echo two")),
        Wait("await", "default/web 3"),
        Typed("mermaid", "node", ("draw",)),
    ]


def test_outputs_stand_behind_what_was_typed():
    made = render(parse(TEXT), [["1\n", ""], [], ["flowchart LR\n"]])
    assert made == (
        "# Title\n\n```console\ncurl# echo one\n1\ncurl# echo two\n```\n\n```console\n# not run\n```\n\n"
        "```mermaid\nflowchart LR\n```\n"
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"pod": "nginx-1", "port": 60238}', '{"pod": "nginx-1", "port": 1506}'),
        ("     94 nginx-1\n", "    104 nginx-1\n"),
        ('      9 "nginx-1", "source": "10.244.2.1"', '     12 "nginx-1", "source": "10.244.2.1"'),
        ("this node, 1 connection\n", "this node, 95 connections\n"),
        ("tcp      6 119 TIME_WAIT src=10.0.0.1 sport=60238", "tcp      6 88 CLOSE src=10.0.0.1 sport=41000"),
        ("last_seen: 42 oldest_pkt: 2 41, 42", "last_seen: 99 oldest_pkt: 3 97, 98, 99"),
        ("/run/pkp-lab/ab12/manifests", "/run/pkp-lab/zz9/manifests"),
    ],
)
def test_what_may_differ(one, other):
    assert settled(one) == settled(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"pod": "nginx-1"}', '{"pod": "nginx-2"}'),
        ('"source": "10.244.2.1"', '"source": "10.244.2.50"'),
        ("-j KUBE-SVC-A", "-j KUBE-SVC-B"),
        ("--probability 0.33333333349", "--probability 0.50000000000"),
        ("dport=80", "dport=53"),
        ("exit status 0", "exit status 1"),
    ],
)
def test_what_may_not(one, other):
    assert settled(one) != settled(other)


def test_all_languages_ask_for_the_same():
    asked = [things_to_do(parse((HERE / f"how-services-work.{language}.md").read_text())) for language in LANGUAGES]
    assert asked.count(asked[0]) == len(LANGUAGES)
    assert len(asked[0]) > 50


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_document_has_the_templates_words(language):
    document = (DOCS / LANGUAGES[language]).read_text()
    at = 0
    for part in parse((HERE / f"how-services-work.{language}.md").read_text()):
        if isinstance(part, str):
            at = document.find(part, at)
            assert at >= 0, f"python -m e2e.learn writes docs/{LANGUAGES[language]}; it lacks: {part[:80]!r}"
            at += len(part)
