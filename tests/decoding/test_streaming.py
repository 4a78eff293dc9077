"""Lists of lines that have come: nothing waits for what may never come, and nothing is lost."""

import os
from queue import Queue

import pytest

from admin_nmt.decoding.streaming import arriving, is_live

LONG = 1000.0  # seconds, which no test waits


def test_a_line_waits_for_no_other_one():
    queue: Queue[str | None] = Queue()
    parts = arriving(iter(queue.get, None), 4, 0.01)
    queue.put("first")
    assert next(parts) == ["first"]
    for line in ["second", "third", None]:
        queue.put(line)
    assert [line for part in parts for line in part] == ["second", "third"]


@pytest.mark.parametrize("latency", [-1.0, 0.0, 0.001, LONG])
def test_no_line_is_lost(latency):
    lines = [str(number) for number in range(200)]
    parts = list(arriving(lines, 7, latency))
    assert [line for part in parts for line in part] == lines
    assert all(0 < len(part) <= 7 for part in parts)
    assert latency != LONG or [len(part) for part in parts] == [7] * 28 + [4]


def test_an_error_comes_after_the_lines_before_it():
    def lines():
        yield from "abc"
        raise ValueError("line 4 is not valid UTF-8")

    parts = arriving(lines(), 2, LONG)
    assert [next(parts), next(parts)] == [["a", "b"], ["c"]]
    with pytest.raises(ValueError, match="line 4"):
        next(parts)


def test_what_is_read_ahead_is_bounded():
    taken = []
    parts = arriving((taken.append(line) or line for line in map(str, range(10**6))), 5, LONG)
    for number in range(3):
        assert next(parts)[0] == str(5 * number)
    assert len(taken) <= 5 * 3 + 5 + 2  # three lists, the queue, and a line on each side of it


def test_a_pipe_is_live_and_a_file_is_not(tmp_path):
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    assert [is_live(tmp_path / name) for name in ("file", "pipe", "absent")] == [False, True, False]
    ends = os.pipe()
    assert is_live(ends[0])
    for end in ends:
        os.close(end)
