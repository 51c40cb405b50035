"""What a peer can do wrong, and what the text says of it."""

from rockhopper.protocol import errors
from rockhopper.protocol.errors import FieldError, SqlSyntaxError, SubscriptionError


def test_all_are_mistakes_of_the_other_side() -> None:
    classes = [value for value in vars(errors).values() if isinstance(value, type)]
    assert all(issubclass(each, errors.ProtocolError) for each in classes)
    tree = errors.__doc__ or ""
    assert [each.__name__ for each in classes if each.__name__ not in tree] == []


def test_a_field_is_named_in_the_text_and_by_itself() -> None:
    error = FieldError("queueId", "is missing", is_missing=True)
    assert str(error) == "field 'queueId' is missing"
    assert (error.name, error.reason, error.is_missing) == ("queueId", "is missing", True)


def test_a_place_in_an_expression_is_counted_from_1_in_the_text() -> None:
    error = SqlSyntaxError("a text is expected", 0)
    assert str(error) == "SQL92: a text is expected (character 1)"
    assert isinstance(error, SubscriptionError)
