from __future__ import annotations

from accelscale_server.recent import Recent


def test_what_was_used_last_stays() -> None:
    recent: Recent[int, str] = Recent(3)
    for number in range(3):
        recent.keep(number, str(number))
    assert recent.find(0) == "0"
    recent.keep(3, "3")
    assert (recent.find(1), recent.find(0), recent.find(2), recent.find(3)) == (None, "0", "2", "3")
    assert len(recent) == 3


def test_an_entry_is_replaced() -> None:
    recent: Recent[str, int] = Recent(2)
    recent.keep("a", 1)
    recent.keep("b", 2)
    recent.keep("a", 3)
    recent.keep("c", 4)
    assert (recent.find("a"), recent.find("b")) == (3, None)
