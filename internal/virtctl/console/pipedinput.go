package console

import (
	"bytes"
	"io"
	"sync"
	"time"
)

const (
	// promptPause makes an unfinished line a prompt, which the next line of piped input answers.
	promptPause = 200 * time.Millisecond
	// promptPatience is the silence after which a line is sent without the expected prompt: at the beginning,
	// and after a line that answered one. A login on a busy machine takes seconds to prompt for the password.
	promptPatience = 30 * time.Second
	// linePatience is that silence if no prompt is expected: the guest has printed nothing yet, or did not
	// prompt for the previous line.
	linePatience = 2 * time.Second
	// talkPatience bounds the wait for a guest that is never silent; it may have begun to boot.
	talkPatience = 2 * time.Minute
	// maxEcho bounds the part of a line that is recognized in the guest's echo. A terminal accepts no longer
	// lines.
	maxEcho = 4096
)

// dictation sends each line of piped input after the guest's prompt: a guest discards input that precedes a
// password prompt.
type dictation struct {
	// done ends a waiting Read.
	done <-chan struct{}
	in   io.Reader
	out  io.Writer
	// heard has an element after new output.
	heard chan struct{}

	mu    sync.Mutex
	guest speech

	// The fields below are Read's: unsent input, its error, and the last byte sent, 0 for none.
	rest  []byte
	ended error
	last  byte
}

// speech is the state of the guest's output.
type speech struct {
	// at is the time of the last output, initially of the connection; ever means that there was any output.
	at   time.Time
	ever bool
	// echo is the rest of the last sent line while the guest only echoes it.
	echo []byte
	// unfinished means that the guest has since begun a line and not ended it.
	unfinished bool
	// expected means that a prompt is expected.
	expected bool
}

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

// answer records the line, or the part of one, that is about to be sent; begins means that it begins a line.
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

func (s *speech) patience() time.Duration {
	switch {
	case s.unfinished:
		return promptPause
	case s.ever && s.expected:
		return promptPatience
	}
	return linePatience
}

// Write prints the guest's output.
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

// Read returns the next line, or the available part of it. The end of the input waits like a line, so that the
// response to the last line is printed.
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

// line returns the text up to and including the first end of a line; the Enter key sends a carriage return.
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

// await waits until the guest prompts for a line, is silent, or talks too long.
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
