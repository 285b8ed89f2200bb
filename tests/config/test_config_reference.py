from pathlib import Path

from pykubeproxy.config.flags import FLAGS
from pykubeproxy.config.reference import markdown
from pykubeproxy.config.settings import SETTINGS

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_the_page_is_up_to_date():
    assert PAGE.read_text(encoding="utf-8") == markdown(), (
        "run: python -m pykubeproxy.config.reference > docs/configuration.md"
    )


def test_every_field_and_flag_is_on_it():
    page = markdown()
    assert [setting.document for setting in SETTINGS if f"`{setting.document}`" not in page and setting.document] == []
    assert [flag.name for flag in FLAGS if f"-{flag.name}`" not in page] == []


def test_every_default_that_help_shows_is_on_it():
    for flag in FLAGS:
        if flag.default and not flag.is_hidden:
            row = next(line for line in markdown().splitlines() if f"-{flag.name}` |" in line)
            assert f"`{flag.default}`" in row
