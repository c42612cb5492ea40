"""Logs without a job: pages and views of any bytes whatever."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from cellhost.tools.kernel.log import START, Ends, JobLog, parse_position, read_page
from cellhost.tools.kernel.text_view import WHOLE_BYTES, TextViewer, fold


def log_with(folder: Path, stdout: bytes, stderr: bytes = b"") -> JobLog:
    (folder / "stdout.log").write_bytes(stdout)
    (folder / "stderr.log").write_bytes(stderr)
    return JobLog(folder)


@given(
    stdout=st.one_of(st.binary(max_size=200), st.text(max_size=80).map(str.encode)),
    stderr=st.binary(max_size=50),
    growth=st.lists(st.integers(0, 60), max_size=6),
    max_chars=st.integers(1, 70),
)
def test_pages_of_any_bytes_put_together_are_the_log_however_it_grew(
    stdout: bytes, stderr: bytes, growth: list[int], max_chars: int
) -> None:
    with TemporaryDirectory() as folder:
        log = log_with(Path(folder), stdout, stderr)
        whole = log.sizes()
        ends = [Ends(min(size, whole.stdout), min(size, whole.stderr)) for size in sorted(growth)]
        position, out, err = START, "", ""
        for end in ends:
            page = read_page(log, position, end, max_chars=max_chars, stream="both", final=False)
            position, out, err = parse_position(page.next), out + page.stdout, err + page.stderr
        while True:
            page = read_page(log, position, whole, max_chars=max_chars, stream="both", final=True)
            position, out, err = parse_position(page.next), out + page.stdout, err + page.stderr
            assert len(page.stdout) + len(page.stderr) <= max(4, max_chars)
            if not page.truncated:
                break
        assert position == whole
        assert out == stdout.decode(errors="replace")
        assert err == stderr.decode(errors="replace")


def test_a_character_still_being_written_is_kept_back_until_it_is_whole(tmp_path: Path) -> None:
    log = log_with(tmp_path, "a€".encode())
    page = read_page(log, START, Ends(3, 0), max_chars=100, stream="both", final=False)
    assert (page.stdout, page.next, page.truncated) == ("a", "1.0", False)
    page = read_page(log, parse_position(page.next), Ends(4, 0), max_chars=100, stream="both", final=False)
    assert (page.stdout, page.next) == ("€", "4.0")


def test_what_a_log_got_after_its_end_is_dropped(tmp_path: Path) -> None:
    log = log_with(tmp_path, b"kept late", b"kept")
    log.cut(Ends(4, 4))
    assert (log.stdout.read_bytes(), log.stderr.read_bytes()) == (b"kept", b"kept")


def test_a_log_that_is_not_there_is_empty(tmp_path: Path) -> None:
    log = JobLog(tmp_path / "missing")
    assert log.sizes() == START
    assert TextViewer(log).view(START, max_chars=10, stream="both", final=True).stdout == ""
    assert TextViewer(log).view(Ends(5, 5), max_chars=10, stream="both", final=True).stdout == ""


def test_a_line_is_folded_to_its_last_state() -> None:
    assert fold("a\rb\rc\nplain\r\n\r\nx\r\r\n50%\r") == "c\nplain\n\nx\n50%"
    assert fold("\r 10%\r 20%\nend") == " 20%\nend"


def test_long_output_is_shown_by_its_ends_with_what_is_missing_counted(tmp_path: Path) -> None:
    text = "".join(f"{n:05}\n" for n in range(2000))
    log = log_with(tmp_path, text.encode())
    page = TextViewer(log).view(log.sizes(), max_chars=1000, stream="both", final=True)
    head, note, tail = (
        page.stdout.partition("\n[… ")[0],
        page.stdout.count("left out"),
        page.stdout.rpartition("…]\n")[2],
    )
    assert len(page.stdout) <= 1000
    assert note == 1
    assert text.startswith(head)
    assert text.endswith(tail)
    assert page.dropped_chars == len(text) - len(head) - len(tail)
    assert page.truncated


def test_a_log_too_large_to_fold_whole_gives_its_ends_and_an_exact_count(tmp_path: Path) -> None:
    line = "zwölf €\n"
    text = line * (WHOLE_BYTES // len(line.encode()) + 1000)
    log = log_with(tmp_path, text.encode())
    viewer = TextViewer(log)
    for _ in range(2):
        page = viewer.view(log.sizes(), max_chars=2000, stream="both", final=True)
        head, tail = page.stdout.partition("\n[… ")[0], page.stdout.rpartition("…]\n")[2]
        assert text.startswith(head)
        assert text.endswith(tail)
        assert page.dropped_chars == len(text) - len(head) - len(tail)
        assert page.next == str(log.sizes())


def test_the_two_streams_share_the_room_fairly(tmp_path: Path) -> None:
    log = log_with(tmp_path, b"o" * 10_000, b"e" * 100)
    page = TextViewer(log).view(log.sizes(), max_chars=1000, stream="both", final=True)
    assert page.stderr == "e" * 100
    assert 800 <= len(page.stdout) <= 900
    log = log_with(tmp_path, b"o" * 10_000, b"e" * 10_000)
    page = TextViewer(log).view(log.sizes(), max_chars=1000, stream="both", final=True)
    assert len(page.stdout) <= 500
    assert len(page.stderr) <= 500


def test_even_the_smallest_view_keeps_to_its_size(tmp_path: Path) -> None:
    log = log_with(tmp_path, b"abcdefghijklmnop" * 10)
    page = TextViewer(log).view(log.sizes(), max_chars=10, stream="stdout", final=True)
    assert page.stdout == "abcde" + "lmnop"
    assert page.dropped_chars == 150
