package concern

// Inquiry tracks whether QEMU's answer to a query is outdated: an event since the question, even during the answer, may
// have changed it. It is a value.
type Inquiry struct {
	begun bool
	// events counts the events so far. answered is its value plus one when the question of the known answer was asked,
	// 0 without an answer.
	events, answered uint64
}

// Outdated reports whether to ask.
func (q *Inquiry) Outdated() bool { return q.answered <= q.events }

// NextQuestion returns the number of a question that is asked now.
func (q *Inquiry) NextQuestion() (question uint64) {
	q.begun = true
	return q.events + 1
}

// AcceptAnswer reports whether the answer to a question counts: it does not if a newer one is known.
func (q *Inquiry) AcceptAnswer(question uint64) (counts bool) {
	if question < q.answered {
		return false
	}
	q.answered = question
	return true
}

// Invalidate records an event. It is news only to an inquiry that was made before.
func (q *Inquiry) Invalidate() (news bool) {
	q.events++
	return q.begun
}
