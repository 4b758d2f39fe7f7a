"""Finding an adapter by name, and saying what is wrong with one that cannot work."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fakes import RecordingBot
from sonar_eval import BaseBotAdapter, ConfigError, load_adapter, validate_bot_adapter
from sonar_eval.adapter import check_adapter, load_object

MODULE = "bot_to_load"


class Counted(RecordingBot):
    """A bot that tells how often it was made."""

    made = 0

    def __init__(self) -> None:
        super().__init__()
        type(self).made += 1


class Wanting(RecordingBot):
    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url


class Nameless:
    async def setup_trial(self, ctx: Any) -> Any: ...

    async def send(self, session: Any, user_msg: str, media: Any = None) -> Any: ...

    async def teardown_trial(self, session: Any) -> None: ...


class Mute:
    name = "mute"

    async def setup_trial(self, ctx: Any) -> Any: ...


@pytest.fixture(autouse=True)
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Offer a module full of adapters, good and bad."""
    made = ModuleType(MODULE)
    Counted.made = 0
    made.__dict__.update(
        bot=RecordingBot(),
        Bot=Counted,
        make=lambda: Counted(),
        make_wanting=lambda url: Wanting(url),
        Wanting=Wanting,
        nameless=Nameless(),
        Nameless=Nameless,
        mute=Mute(),
        make_nothing=lambda: None,
        number=7,
        nothing=None,
        space=type("Space", (), {"bot": RecordingBot()}),
    )
    monkeypatch.setitem(sys.modules, MODULE, made)
    return made


def write_module(folder: Path, name: str, text: str) -> None:
    (folder / f"{name}.py").write_text(text, encoding="utf-8")


def test_an_instance_is_taken_as_it_is(module):
    assert load_adapter(f"{MODULE}:bot") is module.bot


@pytest.mark.parametrize("attribute", ["Bot", "make"])
def test_a_class_or_a_factory_is_called_once(attribute):
    assert isinstance(load_adapter(f"{MODULE}:{attribute}"), Counted)
    assert Counted.made == 1


def test_an_attribute_may_be_dotted(module):
    assert load_adapter(f"{MODULE}:space.bot") is module.space.bot


@pytest.mark.parametrize("path", ["", ":", "bot", "bot_to_load:", ":bot", "bot_to_load.bot"])
def test_a_path_of_another_form_is_shown_the_right_one(path):
    for load in (load_adapter, check_adapter):
        with pytest.raises(ValueError, match="'module:attribute'") as caught:
            load(path)
        assert isinstance(caught.value, ConfigError)
        assert repr(path) in str(caught.value)


@pytest.mark.parametrize("load", [load_adapter, check_adapter, load_object])
def test_a_missing_module_is_named(load):
    with pytest.raises(ModuleNotFoundError, match=r"no_such_bot:Bot.*no module 'no_such_bot'") as caught:
        load("no_such_bot:Bot")
    assert isinstance(caught.value, ConfigError)


def test_a_missing_parent_of_a_module_is_named():
    with pytest.raises(ModuleNotFoundError, match="no module 'no_such_package'"):
        load_adapter("no_such_package.bots:Bot")


@pytest.mark.parametrize("load", [load_adapter, check_adapter, load_object])
@pytest.mark.parametrize("attribute", ["Boot", "space.boot", "bot.brain"])
def test_a_missing_attribute_is_named_with_its_module(load, attribute):
    with pytest.raises(AttributeError, match=f"{MODULE} has no attribute '{attribute}'") as caught:
        load(f"{MODULE}:{attribute}")
    assert isinstance(caught.value, ConfigError)


def test_a_module_that_lacks_a_dependency_is_not_called_missing_itself(tmp_path, monkeypatch):
    write_module(tmp_path, "bot_with_needs", "import no_such_framework\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match=r"bot_with_needs:Bot.*no module 'no_such_framework'"):
        load_adapter("bot_with_needs:Bot")


@pytest.mark.parametrize("text", ["raise RuntimeError('no licence')\n", "def broken(:\n", "1 / 0\n"])
def test_a_module_that_fails_while_it_is_imported_is_quoted(tmp_path, monkeypatch, text):
    name = f"bot_that_fails_{abs(hash(text))}"
    write_module(tmp_path, name, text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=rf"{name}:Bot.*(no licence|SyntaxError|ZeroDivisionError)"):
        load_adapter(f"{name}:Bot")


def test_a_relative_module_is_a_config_error():
    with pytest.raises(ConfigError, match=r"\.bots"):
        load_adapter(".bots:Bot")


def test_an_object_that_lacks_everything_is_told_all_of_it():
    with pytest.raises(TypeError) as caught:
        validate_bot_adapter(7)
    for part in ("name (a string)", "setup_trial()", "send()", "teardown_trial()", "BaseBotAdapter"):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("attribute", "missing"),
    [
        ("number", "setup_trial"),
        ("nothing", "setup_trial"),
        ("mute", "send"),
        ("nameless", "name"),
        ("Nameless", "name"),
        ("make_nothing", "setup_trial"),
    ],
)
def test_what_an_adapter_lacks_is_named_by_a_type_error(attribute, missing):
    with pytest.raises(TypeError, match=missing):
        load_adapter(f"{MODULE}:{attribute}")


@pytest.mark.parametrize("attribute", ["Wanting", "make_wanting"])
def test_a_class_or_factory_that_wants_an_argument_is_a_type_error_naming_it(attribute):
    with pytest.raises(TypeError, match="url"):
        load_adapter(f"{MODULE}:{attribute}")


def test_a_bot_made_from_the_base_class_is_valid():
    validate_bot_adapter(BaseBotAdapter())


def test_a_name_that_is_no_text_is_no_name():
    bot = RecordingBot()
    bot.name = None  # type: ignore[assignment]
    with pytest.raises(TypeError, match="name"):
        validate_bot_adapter(bot)


@pytest.mark.parametrize("attribute", ["bot", "Bot", "make", "space.bot"])
def test_checking_a_good_adapter_makes_none(attribute):
    check_adapter(f"{MODULE}:{attribute}")
    assert Counted.made == 0


@pytest.mark.parametrize("attribute", ["Wanting", "make_wanting"])
def test_checking_finds_an_argument_that_nobody_would_give(attribute):
    with pytest.raises(ConfigError, match=rf"{MODULE}:{attribute}.*url"):
        check_adapter(f"{MODULE}:{attribute}")


@pytest.mark.parametrize(
    ("attribute", "missing"),
    [("number", "setup_trial"), ("nothing", "setup_trial"), ("mute", "send"), ("nameless", "name")],
)
def test_checking_finds_what_an_instance_lacks(attribute, missing):
    with pytest.raises((TypeError, ConfigError), match=missing):
        check_adapter(f"{MODULE}:{attribute}")


def test_a_class_without_the_methods_is_told_without_being_made():
    with pytest.raises(TypeError, match=r"lacks setup_trial\(\), send\(\), teardown_trial\(\)"):
        check_adapter("collections:OrderedDict")
