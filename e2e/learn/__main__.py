"""``python -m e2e.learn``: run the walk once and write the document in every language. As root; half a minute."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from e2e.learn import run, template
from e2e.netlab import LabError

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs"
LANGUAGES = {"en": "how-services-work.md", "zh": "how-services-work.zh.md"}
"""Language of a template -> name of the document."""


def documents() -> dict[str, str]:
    """Return the documents of a fresh run by name.

    Raises:
        LabError: the laboratory did not come up, or the templates do not ask for the same.

    """
    parsed = {language: template.parse(_template(language)) for language in LANGUAGES}
    things = template.things_to_do(parsed["en"])
    for language, parts in parsed.items():
        if template.things_to_do(parts) != things:
            raise LabError(f"the templates en and {language} ask for different things")
    shown = run.outputs(things)
    return {LANGUAGES[language]: _note(language) + template.render(parts, shown) for language, parts in parsed.items()}


def _template(language: str) -> str:
    return (HERE / f"how-services-work.{language}.md").read_text(encoding="utf-8")


def _note(language: str) -> str:
    return f"<!-- Written by python -m e2e.learn from e2e/learn/how-services-work.{language}.md; edit that. -->\n\n"


def stale(made: dict[str, str]) -> list[str]:
    """Return the documents that say something else than a fresh run, but for what differs from run to run."""
    found = []
    for name, text in made.items():
        path = DOCS / name
        known = path.read_text(encoding="utf-8") if path.exists() else ""
        if template.settled(known) != template.settled(text):
            found.append(name)
    return found


def main() -> int:
    """Write the documents, or with --check only tell whether they are current."""
    parser = argparse.ArgumentParser(prog="python -m e2e.learn", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a document is not current")
    options = parser.parse_args()
    if os.geteuid():
        sys.exit("this makes network namespaces and needs root")
    os.environ["PATH"] = f"{os.environ.get('PATH', '/usr/bin:/bin')}:/usr/sbin:/sbin"
    try:
        made = documents()
    except LabError as problem:
        sys.exit(str(problem))
    old = stale(made)
    if options.check:
        for name in old:
            print(f"docs/{name} is not current; python -m e2e.learn writes it", file=sys.stderr)
        return 1 if old else 0
    for name, text in made.items():
        (DOCS / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
