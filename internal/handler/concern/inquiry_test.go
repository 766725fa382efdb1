package concern

import "testing"

func TestWhenQEMUIsAskedAgain(t *testing.T) {
	var q Inquiry
	due := func(when string, want bool) {
		t.Helper()
		if q.Outdated() != want {
			t.Errorf("%s it is due: %v", when, !want)
		}
	}
	due("at first", true)
	if q.Invalidate() {
		t.Error("it is news although nobody has asked")
	}
	first := q.NextQuestion()
	due("while QEMU has not answered", true)
	if !q.Invalidate() {
		t.Error("it is no news to one who waits for the answer")
	}
	second := q.NextQuestion()
	if !q.AcceptAnswer(first) {
		t.Error("the first answer does not count")
	}
	due("when only the question before the event is answered", true)
	for range 2 {
		if !q.AcceptAnswer(second) {
			t.Error("the second answer, which is given twice, does not count")
		}
	}
	due("when the question after the event is answered", false)
	if q.AcceptAnswer(first) {
		t.Error("an answer that comes late counts")
	}
	due("when another answer comes late", false)
	if !q.Invalidate() {
		t.Error("it is no news when the answer is known")
	}
	due("after another event", true)
}
