"""docs/how-services-work.md says what a run says today, in every language."""

import pytest

from e2e.learn.__main__ import documents, stale

pytestmark = [pytest.mark.netns, pytest.mark.slow]


def test_documents_are_current():
    made = documents()
    assert stale(made) == [], "python -m e2e.learn writes them anew"
    changed = {name: text.replace("-j KUBE-SERVICES", "-j SOMEWHERE") for name, text in made.items()}
    assert stale(changed) == list(made), "control: a rule that reads otherwise is noticed"
