import asyncio

import pytest

from fakes import run
from sonar_eval.errors import (
    BotError,
    BoundaryError,
    ConfigError,
    EmptyTranscriptError,
    HarnessError,
    IngestError,
    JudgeError,
    LLMError,
    LLMTransportError,
    MissingAttributeError,
    MissingModuleError,
    Owner,
    SimulatorError,
    SonarEvalError,
    boundary,
    describe,
)


def cross(owner, error):
    with boundary(owner, "step"):
        raise error


@pytest.mark.parametrize(
    ("owner", "named"),
    [
        (Owner.BOT, BotError),
        (Owner.SIMULATOR, SimulatorError),
        (Owner.JUDGE, JudgeError),
        (Owner.INGEST, IngestError),
        (Owner.HARNESS, HarnessError),
    ],
)
def test_an_error_is_named_after_the_border_it_crossed(owner, named):
    cause = KeyError("x")
    with pytest.raises(named, match="KeyError: 'x'") as caught:
        cross(owner, cause)
    assert caught.value.owner is owner
    assert caught.value.step == "step"
    assert caught.value.origin is cause


def test_an_error_that_is_named_already_keeps_its_name():
    with pytest.raises(IngestError, match="no answer") as caught:
        cross(Owner.BOT, IngestError("no answer", step="pull"))
    assert caught.value.step == "pull"
    assert caught.value.origin is caught.value


def test_a_models_outage_at_the_bots_border_is_no_failure_of_the_bot():
    with pytest.raises(HarnessError, match="503"):
        cross(Owner.BOT, LLMTransportError("503"))
    with pytest.raises(SimulatorError, match="503"):
        cross(Owner.SIMULATOR, LLMTransportError("503"))


@pytest.mark.parametrize("passing", [KeyboardInterrupt(), SystemExit(1)])
def test_interrupts_cross_a_border_untouched(passing):
    with pytest.raises(type(passing)) as caught:
        cross(Owner.BOT, passing)
    assert caught.value is passing


def test_a_cancelled_task_crosses_a_border_as_cancelled():
    async def hang():
        with boundary(Owner.BOT, "turn 1"):
            await asyncio.Event().wait()

    async def main():
        task = asyncio.create_task(hang())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return task.cancelled()

    assert run(main())


def test_a_cancellation_that_nobody_asked_for_is_a_failure():
    async def cancel_itself():
        inner = asyncio.create_task(asyncio.sleep(60))
        inner.cancel()
        with boundary(Owner.BOT, "turn 1"):
            await inner

    with pytest.raises(BotError, match="CancelledError"):
        run(cancel_itself())


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError("too small"), "ValueError: too small"),
        (TimeoutError(), "TimeoutError"),
        (RuntimeError("  \n"), "RuntimeError"),
    ],
)
def test_a_description_is_never_empty(error, words):
    assert describe(error) == words


def test_every_error_raised_on_purpose_has_one_root():
    for named in (ConfigError, BoundaryError, LLMError, EmptyTranscriptError):
        assert issubclass(named, SonarEvalError)


def test_errors_keep_the_built_in_parents_that_callers_catch():
    assert issubclass(MissingModuleError, ConfigError)
    assert issubclass(MissingModuleError, ModuleNotFoundError)
    assert issubclass(MissingAttributeError, AttributeError)
    assert issubclass(EmptyTranscriptError, IngestError)
