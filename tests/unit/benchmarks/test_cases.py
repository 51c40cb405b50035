"""The cases and the table hang together."""

import pytest

from benchmarks.cases import BASE, CASES, ECHO, ECHOES, FEW_IN_FLIGHT, SETUPS, TABLE, Case


def test_no_two_cases_have_a_name_in_common() -> None:
    names = [case.name for case in (*ECHOES, *CASES, *TABLE)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("case", [*CASES, *TABLE], ids=lambda case: case.name)
def test_what_a_case_names_is_there(case: Case) -> None:
    assert case.setup in SETUPS
    assert not case.half_of or case.half_of in {each.name for each in CASES}


@pytest.mark.parametrize("case", TABLE, ids=lambda case: case.name)
def test_a_cell_of_the_table_leaves_the_base_along_one_axis(case: Case) -> None:
    figures = {
        "body": (case.body_size_bytes, BASE.body_size_bytes),
        "connections": (case.connections, BASE.connections),
        "topics": (case.topics, BASE.topics),
    }
    assert [axis for axis, (one, other) in figures.items() if one != other] == [case.axis]


def test_a_case_is_compared_with_the_echo_of_its_shape() -> None:
    shapes = {echo.name: (echo.connections, echo.in_flight) for echo in ECHOES}
    for case in FEW_IN_FLIGHT:
        assert shapes[case.echo] == (case.connections, case.in_flight)
    assert BASE.echo == ECHO.name
    assert {case.echo for case in TABLE} == {ECHO.name}
