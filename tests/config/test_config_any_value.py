"""Every field in turn with every odd value: a default or a clear message, never a traceback (R074)."""

import pytest
import yaml
from config_documents import HEAD, problems_of, with_field
from hypothesis import given, settings
from hypothesis import strategies as st

from pykubeproxy.config.document import load_document
from pykubeproxy.config.options import Options
from pykubeproxy.config.settings import SETTINGS, default_of, get
from pykubeproxy.config.write import to_configz, to_yaml
from pykubeproxy.errors import ConfigurationError

FIELDS = [setting.document for setting in SETTINGS if setting.document]
BY_DOCUMENT = {setting.document: setting for setting in SETTINGS}
WRONG = [{}, [], [None], [[1]], {"a": {"b": 1}}, [{"filePattern": 3}], {1: 2}, float("nan"), float("inf")]
ODD = ["", 0, "0s", "0", "x", " ", -1, 1.5, 2**70, -(2**70), 1e300, True, False, b"bytes", *WRONG]


def check(text: str, path: str) -> Options | None:
    """Load; a refusal must name the field in one line and hold nothing else."""
    try:
        options = load_document(text).options
    except ConfigurationError as error:
        (problem,) = error.problems
        assert problem.startswith(f"{path}: "), problem
        assert "\n" not in problem
        assert len(problem) < 400
        return None
    # what loads can be written, and read again
    assert to_configz(options)
    assert load_document(to_yaml(options)).options.iptables == options.iptables
    return options


@pytest.mark.parametrize("path", FIELDS)
def test_null_is_as_good_as_absent(path):
    assert check(with_field(path, None), path) == Options()


@pytest.mark.parametrize("path", FIELDS)
@pytest.mark.parametrize("value", ODD, ids=repr)
def test_an_odd_value_is_the_default_or_refused(path, value):
    check(with_field(path, value), path)


@pytest.mark.parametrize("path", [path for path in FIELDS if BY_DOCUMENT[path].zero_is_default])
def test_zero_is_the_default_where_the_table_says_so(path):
    setting = BY_DOCUMENT[path]
    zero = {"duration": "0s"}.get(setting.kind.flag_type, setting.kind.zero)
    options = check(with_field(path, zero), path)
    assert options is not None
    assert get(options, setting) == default_of(setting)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=400, deadline=None)
@given(path=st.sampled_from(FIELDS), value=_VALUES)
def test_any_value_of_any_field(path, value):
    check(with_field(path, value), path)


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=60) | st.text(alphabet="{}[]:,-&*!|>'\"%@`#? \nab01", max_size=60))
def test_any_text(text):
    for document in (text, HEAD + text):
        assert "\n" not in "".join(problems_of(document))


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from(sorted({path.partition(".")[0] for path in FIELDS})), _VALUES, max_size=6))
def test_any_mapping(mapping):
    try:
        load_document(HEAD + (yaml.safe_dump(mapping) if mapping else ""))
    except ConfigurationError as error:
        problems = error.problems
    else:
        problems = []
    assert all(problem.partition(".")[0].partition(":")[0] in mapping for problem in problems)
