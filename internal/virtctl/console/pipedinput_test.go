package console

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

type player struct {
	net.Conn
	typed chan byte
}

// say writes the guest's output.
func (g *player) say(text string) { _, _ = io.WriteString(g.Conn, text) }

// line reads the input up to Enter.
func (g *player) line() string {
	var text []byte
	for c := range g.typed {
		if c == '\n' || c == '\r' {
			break
		}
		text = append(text, c)
	}
	return string(text)
}

// flush discards unread input.
func (g *player) flush() {
	for len(g.typed) > 0 {
		<-g.typed
	}
}

func dictated(t *testing.T, in io.Reader, play func(g *player)) string {
	t.Helper()
	near, far := net.Pipe()
	g := &player{Conn: far, typed: make(chan byte, 1<<17)}
	played := make(chan struct{})
	go func() {
		defer close(g.typed)
		for chunk := make([]byte, 4096); ; {
			n, err := far.Read(chunk)
			for _, c := range chunk[:n] {
				g.typed <- c
			}
			if err != nil {
				return
			}
		}
	}()
	go func() {
		defer close(played)
		play(g)
		for range g.typed { // a guest that never hangs up
		}
	}()
	var out bytes.Buffer
	if err := dictate(t.Context(), in, &out, near); err != nil {
		t.Error(err)
	}
	<-played
	return out.String()
}

// login asks for a password and discards earlier input, as login(1) does. It pauses before it asks, and before its
// shell does.
func (g *player) login(thinks time.Duration) {
	name := g.line()
	for _, c := range name + "\r\n" {
		g.say(string(c))
	}
	time.Sleep(thinks)
	g.flush()
	g.say("Password: ")
	password := g.line()
	g.say("\r\n")
	time.Sleep(thinks)
	g.flush()
	g.say("welcome " + name + ", " + password + "\r\n$ ")
	command := g.line()
	g.say(command + "\r\n")
	time.Sleep(thinks)
	g.say("done\r\n$ ")
}

const loggedIn = "root\r\nPassword: \r\nwelcome root, secret\r\n$ uptime\r\ndone\r\n$ "

// A name, a password and a command are piped at once. All must reach the guest, however long it pauses, and
// whatever remains of its last screen.
func TestPipedInputAnswersThePrompts(t *testing.T) {
	for name, thinks := range map[string]time.Duration{
		"a fast guest": time.Millisecond, "an emulated guest": 1500 * time.Millisecond, "a guest of a busy machine": 25 * time.Second,
	} {
		for _, script := range []string{"root\nsecret\nuptime\n", "root\rsecret\ruptime\r", "root\r\nsecret\r\nuptime\r\n"} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					got := dictated(t, strings.NewReader(script), func(g *player) {
						g.say("vm login: ")
						g.login(thinks)
					})
					if got != "vm login: "+loggedIn {
						t.Errorf("%q: the guest says %q", script, got)
					}
				})
			})
		}
	}
}

// TestTheFirstLineWaitsForTheLogin has a guest that boots.
func TestTheFirstLineWaitsForTheLogin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const boot = "[    1.0] booting\r\n"
		got := dictated(t, strings.NewReader("root\nsecret\nuptime\n"), func(g *player) {
			for range 5 {
				g.say(boot)
				time.Sleep(10 * time.Second)
			}
			g.flush()
			g.say("vm login: ")
			g.login(time.Second)
		})
		if want := strings.Repeat(boot, 5) + "vm login: " + loggedIn; got != want {
			t.Errorf("the guest says %q, want %q", got, want)
		}
	})
}

// The guest has echoed a part of the line, or all of it except the Enter, and pauses.
func TestAnEchoIsNoPrompt(t *testing.T) {
	for _, echoed := range []string{"ro", "root"} {
		synctest.Test(t, func(t *testing.T) {
			got := dictated(t, strings.NewReader("root\nsecret\n"), func(g *player) {
				g.say("vm login: ")
				g.line()
				g.say(echoed)
				time.Sleep(3 * time.Second)
				g.flush()
				g.say("root"[len(echoed):] + "\r\nPassword: ")
				g.say("\r\n" + g.line() + "\r\n")
			})
			if want := "vm login: root\r\nPassword: \r\nsecret\r\n"; got != want {
				t.Errorf("the guest says %q, want %q", got, want)
			}
		})
	}
}

// The guest's program reads lines without a prompt.
func TestAGuestThatAsksForNothingIsNotWaitedForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines []string
		began := time.Now()
		dictated(t, strings.NewReader("cat\n"+strings.Repeat("text\n", 20)), func(g *player) {
			g.say("$ ")
			for range 21 {
				lines = append(lines, g.line())
				g.say(lines[len(lines)-1] + "\r\n")
			}
		})
		if len(lines) != 21 || lines[20] != "text" || time.Since(began) > promptPatience+25*linePatience {
			t.Errorf("after %v the guest has %q", time.Since(began), lines)
		}
	})
}

// A program types an unfinished line and waits for the result.
func TestAPartOfALineIsPassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, program := io.Pipe()
		asked := make(chan struct{})
		go func() {
			_, _ = io.WriteString(program, "\x00\xff\x03")
			<-asked
			_, _ = io.WriteString(program, "y")
			_ = program.Close()
		}()
		var got [4]byte
		dictated(t, in, func(g *player) {
			for i := range got {
				got[i] = <-g.typed
				if i == 2 {
					close(asked)
				}
			}
		})
		if string(got[:]) != "\x00\xff\x03y" {
			t.Errorf("the guest has %q", got)
		}
	})
}

// The guest's output must be shown until it falls silent.
func TestWithoutInputNobodyWaitsForAPrompt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		got := dictated(t, strings.NewReader(""), func(g *player) { g.say("booting\r\n") })
		if got != "booting\r\n" || time.Since(began) > 5*time.Second {
			t.Errorf("after %v the guest says %q", time.Since(began), got)
		}
	})
}

// TestAGuestThatTalksOnIsAnswered, and an endless line, longer than any buffer, must be passed on completely.
func TestAGuestThatTalksOnIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		long := strings.Repeat("x", 100_000)
		began := time.Now()
		var first string
		var rest []byte
		dictated(t, strings.NewReader("first\n"+long), func(g *player) {
			talk, stop := context.WithCancel(t.Context())
			defer stop()
			go func() {
				for talk.Err() == nil {
					g.say("tick\r\n")
					time.Sleep(100 * time.Millisecond)
				}
			}()
			first = g.line()
			for range long {
				rest = append(rest, <-g.typed)
			}
		})
		if first != "first" || string(rest) != long || time.Since(began) > 2*talkPatience+time.Minute {
			t.Errorf("after %v the guest has %q and %d bytes", time.Since(began), first, len(rest))
		}
	})
}
