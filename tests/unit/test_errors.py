"""The error classes: one tree, messages with hints, and a safe passage between processes."""

import pickle

import pytest

from qdebug import errors

ALL = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, errors.QdebugError)]


def make(kind):
    if kind is errors.MissingExtraError:
        return kind("onnx", extra="onnx", purpose="Reading ONNX files")
    return kind("Tensor 'a' has 3 elements, expected 4.", hint="Run: qdebug info FILE")


@pytest.mark.parametrize("kind", ALL)
def test_every_error_is_caught_as_qdebug_error_and_has_message_and_hint(kind):
    with pytest.raises(errors.QdebugError) as caught:
        raise make(kind)
    assert caught.value.message
    assert caught.value.hint
    assert str(caught.value) == f"{caught.value.message} {caught.value.hint}"


@pytest.mark.parametrize("kind", ALL)
def test_every_error_survives_pickling(kind):
    error = make(kind)
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301  our own bytes
    assert type(copy) is kind
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)


def test_without_a_hint_the_text_is_the_message_alone():
    assert str(errors.UsageError("No.")) == "No."


@pytest.mark.parametrize(
    ("kind", "parent"),
    [
        (errors.MissingExtraError, ImportError),
        (errors.OutputExistsError, FileExistsError),
        (errors.OutputExistsError, errors.RecordingError),
        (errors.InputError, errors.UsageError),
        (errors.NoKernelError, errors.KernelError),
        (errors.RefusedSizeError, errors.KernelError),
        (errors.FormatVersionError, errors.RecordingError),
        (errors.NotARecordingError, errors.RecordingError),
    ],
)
def test_an_error_is_also_what_a_caller_would_expect(kind, parent):
    assert issubclass(kind, parent)


def test_missing_extra_names_the_package_and_the_pip_line():
    error = errors.MissingExtraError("onnxruntime", extra="onnx", purpose="The backend 'onnxruntime'")
    assert "'onnxruntime'" in error.message
    assert "pip install 'qdebug[onnx]'" in error.hint
    assert "pip install '.[onnx]'" in error.hint


def test_the_tree_in_the_module_docstring_shows_every_class():
    drawn = {word for word in (errors.__doc__ or "").split() if word.endswith("Error")}
    assert {kind.__name__ for kind in ALL} <= drawn
