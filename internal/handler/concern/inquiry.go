package concern

// Inquiry tracks whether QEMU's answer to a query is outdated, because an event has come since the question, even during
// the answer. It is a value.
type Inquiry struct {
	begun bool
	// events counts the events. answered is events+1 at the question of the known answer, 0 without an answer.
	events, answered uint64
}

// Outdated reports whether to query QEMU.
func (q *Inquiry) Outdated() bool { return q.answered <= q.events }

// NextQuestion returns the number of a question that is sent now.
func (q *Inquiry) NextQuestion() (question uint64) {
	q.begun = true
	return q.events + 1
}

// AcceptAnswer records the answer to a question. It returns false if a newer answer is known.
func (q *Inquiry) AcceptAnswer(question uint64) (counts bool) {
	if question < q.answered {
		return false
	}
	q.answered = question
	return true
}

// Invalidate records an event. It returns false before the first question.
func (q *Inquiry) Invalidate() (news bool) {
	q.events++
	return q.begun
}
