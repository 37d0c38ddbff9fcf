from qdebug.tui.nodes.navigator import Trail


def test_back_and_forward_retrace_the_jumps():
    trail = Trail()
    trail.add_jump(0, 9)
    trail.add_jump(9, 4)
    assert trail.rows == (0, 9, 4)
    assert trail.step(-1, 4) == 9
    assert trail.step(-1, 9) == 0
    assert trail.step(-1, 0) is None
    assert trail.step(1, 0) == 9


def test_back_returns_first_to_where_the_last_jump_ended():
    trail = Trail()
    trail.add_jump(0, 9)
    assert trail.step(-1, 12) == 9, "the user moved on by hand"


def test_a_new_jump_forgets_what_was_ahead():
    trail = Trail()
    trail.add_jump(0, 9)
    trail.add_jump(9, 4)
    trail.step(-1, 4)
    trail.add_jump(9, 7)
    assert trail.rows == (0, 9, 7)
    assert trail.step(1, 7) is None


def test_a_long_history_keeps_its_end():
    trail = Trail()
    for row in range(2000):
        trail.add_jump(row, row + 1)
    assert len(trail.rows) == 500
    assert trail.rows[-1] == 2000


def test_marks_are_walked_in_order_and_around():
    trail = Trail()
    assert trail.next_mark(0) is None
    assert trail.toggle(7)
    assert trail.toggle(3)
    assert [trail.next_mark(row) for row in (0, 3, 7)] == [3, 7, 3]
    assert not trail.toggle(3)
    assert trail.marks == [7]


def test_a_trail_goes_over_to_another_table_without_what_is_gone_there():
    trail = Trail()
    for start, target in ((0, 4), (4, 2), (2, 7)):
        trail.add_jump(start, target)
    trail.step(-1, 7)
    trail.toggle(4)
    trail.toggle(2)
    other = trail.for_table(lambda row: None if row == 4 else row + 10)
    assert other.rows == (10, 12)
    assert other.marks == [12]
    assert other.step(1, 12) == 17
    assert Trail().for_table(lambda row: row).rows == ()
