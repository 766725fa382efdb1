package guest

import "context"

// inquiry tracks whether QEMU's answer to a query is outdated: an event since the question, even during the answer,
// may have changed it. It is a value.
type inquiry struct {
	begun bool
	// events counts the events so far. answered is its value plus one when the question of the known answer was
	// asked, 0 without an answer.
	events, answered uint64
}

func (q *inquiry) outdated() bool { return q.answered <= q.events }

// nextQuestion returns the number of a question that is asked now.
func (q *inquiry) nextQuestion() (question uint64) {
	q.begun = true
	return q.events + 1
}

// acceptAnswer reports whether the answer to a question counts: it does not if a newer one is known.
func (q *inquiry) acceptAnswer(question uint64) (counts bool) {
	if question < q.answered {
		return false
	}
	q.answered = question
	return true
}

// invalidate is news only to an inquiry that was made before.
func (q *inquiry) invalidate() (news bool) {
	q.events++
	return q.begun
}

func (g *Guest) nextQuestion(of *inquiry) (question uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return of.nextQuestion()
}

// Without an answer from QEMU, the inquiry stays outdated.
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
