package console

import (
	"bytes"
	"context"
	"io"
	"sync"
	"time"
)

const (
	// promptPause is how long a guest must be silent after an unfinished line for that to be a prompt, which the next line
	// of piped input answers.
	promptPause = 200 * time.Millisecond
	// promptPatience is how long a guest must be silent without a prompt where one is expected: at the beginning, and after a line
	// that answered one. A login on a busy machine takes seconds to ask for the password.
	promptPatience = 30 * time.Second
	// linePatience is how long it must be silent where none is expected: it has said nothing yet, or has not asked for the line before either.
	linePatience = 2 * time.Second
	// talkPatience is how long a guest that never falls silent is waited for; it may have begun to boot.
	talkPatience = 2 * time.Minute
	// maxEcho is how much of a line is known again when the guest echoes it. A terminal takes no longer lines.
	maxEcho = 4096
)

// dictation passes piped input on line by line, each when the guest asks for it. A guest throws away
// what is typed before it asks for a password: a script that is sent at once ends there.
type dictation struct {
	// done ends a Read that waits.
	done <-chan struct{}
	in   io.Reader
	out  io.Writer
	// heard has an element when the guest has said something since it was looked at.
	heard chan struct{}

	mu    sync.Mutex
	guest speech

	// What follows is Read's own: what was read of the input and not passed on, how the reading ended, and the last byte that was
	// passed on, 0 for none.
	rest  []byte
	ended error
	last  byte
}

// speech is what a guest has said.
type speech struct {
	// at is when it said something last, or when it was first listened to; ever means that it has said something.
	at   time.Time
	ever bool
	// echo is what is left of the line that was passed on last, as long as the guest has said nothing else since.
	echo []byte
	// unfinished means that the guest has begun a line since then, and not ended it.
	unfinished bool
	// expected means that a prompt is.
	expected bool
}

// hear takes note of what the guest says.
func (s *speech) hear(said []byte, now time.Time) {
	s.at, s.ever = now, true
	for _, b := range said {
		if len(s.echo) > 0 && b == s.echo[0] {
			s.echo = s.echo[1:]
			continue
		}
		s.echo, s.unfinished = nil, b != '\n' && b != '\r'
	}
}

// answer takes note of what the guest is about to get: a line or a part of one, and whether that is its begin.
func (s *speech) answer(line []byte, begins bool) {
	if begins {
		s.expected = s.unfinished || !s.ever
		s.echo = nil
	}
	s.unfinished = false
	if s.echo = append(s.echo, bytes.TrimRight(line, "\r\n")...); len(s.echo) > maxEcho {
		s.echo = nil
	}
}

// patience is how long it must be silent for the next line.
func (s *speech) patience() time.Duration {
	switch {
	case s.unfinished:
		return promptPause
	case s.ever && s.expected:
		return promptPatience
	}
	return linePatience
}

func newDictation(ctx context.Context, in io.Reader, out io.Writer) *dictation {
	return &dictation{
		done: ctx.Done(), in: in, out: out, heard: make(chan struct{}, 1),
		guest: speech{at: time.Now(), expected: true},
	}
}

// Write shows what the guest says.
func (d *dictation) Write(p []byte) (int, error) {
	d.mu.Lock()
	d.guest.hear(p, time.Now())
	d.mu.Unlock()
	select {
	case d.heard <- struct{}{}:
	default:
	}
	return d.out.Write(p)
}

// Read returns the next line, or what there is of it. The end of the input waits as a line does, so that what the last
// one is answered is shown.
func (d *dictation) Read(p []byte) (int, error) {
	if len(d.rest) == 0 && d.ended == nil {
		chunk := make([]byte, 32<<10)
		n, err := d.in.Read(chunk)
		d.rest, d.ended = chunk[:n], err
	}
	begins := d.last == 0 || d.last == '\n' || d.last == '\r' && !bytes.HasPrefix(d.rest, []byte("\n"))
	if begins && (len(d.rest) > 0 || d.last != 0) {
		d.await()
	}
	if len(d.rest) == 0 {
		return 0, d.ended
	}
	n := copy(p, line(d.rest))
	d.mu.Lock()
	d.guest.answer(p[:n], begins)
	d.mu.Unlock()
	d.last, d.rest = p[n-1], d.rest[n:]
	return n, nil
}

// line is what the text begins with, up to the end of a line: the key Enter is a carriage return.
func line(text []byte) []byte {
	end := bytes.IndexAny(text, "\r\n") + 1
	if end == 0 {
		return text
	}
	if text[end-1] == '\r' && bytes.HasPrefix(text[end:], []byte("\n")) {
		end++
	}
	return text[:end]
}

// await returns when the guest asks for a line, has fallen silent, or talks too long.
func (d *dictation) await() {
	late := time.NewTimer(talkPatience)
	defer late.Stop()
	for {
		d.mu.Lock()
		silence := time.NewTimer(time.Until(d.guest.at.Add(d.guest.patience())))
		d.mu.Unlock()
		select {
		case <-d.heard:
			silence.Stop()
			continue
		case <-silence.C:
		case <-late.C:
		case <-d.done:
		}
		silence.Stop()
		return
	}
}
