package console

import (
	"bufio"
	"context"
	"errors"
	"io"
	"sync"
	"time"
)

const (
	// promptPause is how long a guest must be silent after an unfinished line for that to be a prompt, which the next line
	// of piped input answers.
	promptPause = 200 * time.Millisecond
	// answerPatience is how long it must be silent without one: a login takes a moment to ask for the password.
	answerPatience = 2 * time.Second
	// talkPatience is how long a guest that never falls silent is waited for.
	talkPatience = 10 * time.Second
)

// dictation passes piped input on line by line, each when the guest has answered the one before. A guest throws away
// what is typed before it asks for a password: a script that is sent at once ends there.
type dictation struct {
	// done ends a Read that waits.
	done <-chan struct{}
	in   *bufio.Reader
	out  io.Writer
	// heard has an element when the guest has said something since it was looked at.
	heard chan struct{}

	mu sync.Mutex
	// prompt means that the guest has begun a line, and not ended it, since a line was passed on.
	prompt bool

	// What follows is Read's own: what is left of a line, and whether a whole one was passed on.
	rest  []byte
	ended bool
}

func newDictation(ctx context.Context, in io.Reader, out io.Writer) *dictation {
	return &dictation{done: ctx.Done(), in: bufio.NewReader(in), out: out, heard: make(chan struct{}, 1)}
}

// Write shows what the guest says.
func (d *dictation) Write(p []byte) (int, error) {
	if len(p) > 0 {
		d.mu.Lock()
		d.prompt = p[len(p)-1] != '\n'
		d.mu.Unlock()
		select {
		case d.heard <- struct{}{}:
		default:
		}
	}
	return d.out.Write(p)
}

// Read returns the next line, or a part of one.
func (d *dictation) Read(p []byte) (int, error) {
	if len(d.rest) == 0 {
		if d.ended {
			d.await()
		}
		line, err := d.in.ReadSlice('\n')
		if len(line) == 0 || err != nil && !errors.Is(err, bufio.ErrBufferFull) && !errors.Is(err, io.EOF) {
			return 0, err
		}
		d.rest, d.ended = line, line[len(line)-1] == '\n'
		d.mu.Lock()
		d.prompt = false
		d.mu.Unlock()
	}
	n := copy(p, d.rest)
	d.rest = d.rest[n:]
	return n, nil
}

// await returns when the guest has fallen silent, or talks too long.
func (d *dictation) await() {
	late := time.NewTimer(talkPatience)
	defer late.Stop()
	for {
		d.mu.Lock()
		patience := answerPatience
		if d.prompt {
			patience = promptPause
		}
		d.mu.Unlock()
		silence := time.NewTimer(patience)
		select {
		case <-d.heard:
			silence.Stop()
		case <-silence.C:
			return
		case <-late.C:
			silence.Stop()
			return
		case <-d.done:
			silence.Stop()
			return
		}
	}
}
