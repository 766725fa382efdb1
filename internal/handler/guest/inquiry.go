package guest

import "context"

// inquiry is whether QEMU has to be asked for something again: what it has reported since it was asked last may have made
// another answer of it, even while it was answering. It is a value.
type inquiry struct {
	// begun means that QEMU was asked once at least.
	begun bool
	// events counts what was reported. answered is one more than that was when QEMU was asked for the answer that is known,
	// 0 for none.
	events, answered uint64
}

// outdated reports whether QEMU is to be asked.
func (q *inquiry) outdated() bool { return q.answered <= q.events }

// number notes that QEMU is asked now, and numbers the question for answer.
func (q *inquiry) number() (question uint64) {
	q.begun = true
	return q.events + 1
}

// answer notes that a question was answered, and reports whether that counts: nothing newer is known.
func (q *inquiry) answer(question uint64) (counts bool) {
	if question < q.answered {
		return false
	}
	q.answered = question
	return true
}

// expire notes that the answer may be another now, and reports whether that is news to one who has asked.
func (q *inquiry) expire() (news bool) {
	q.events++
	return q.begun
}

// number is inquiry.number.
func (g *Guest) number(of *inquiry) (question uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return of.number()
}

// refresh asks QEMU if what it has said is outdated, as it stays when QEMU does not answer.
func (g *Guest) refresh(ctx context.Context, of *inquiry, ask func(context.Context) error) {
	g.mu.Lock()
	outdated := of.outdated()
	g.mu.Unlock()
	if !outdated {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	if err := ask(ctx); err != nil {
		g.env.Log.V(1).Info("QEMU did not answer", "reason", err.Error())
	}
}
