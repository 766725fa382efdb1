package console

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// login is a guest that throws away what is typed before it asks for the password, as login(1) does.
func login(guest net.Conn, thinks time.Duration) {
	typed := make(chan byte, 64)
	go func() {
		defer close(typed)
		for one := make([]byte, 1); ; {
			if _, err := guest.Read(one); err != nil {
				return
			}
			typed <- one[0]
		}
	}()
	line := func() string {
		var text []byte
		for c := range typed {
			if c == '\n' {
				break
			}
			text = append(text, c)
		}
		return string(text)
	}
	name := line()
	_, _ = io.WriteString(guest, name+"\r\n")
	time.Sleep(thinks)
	for len(typed) > 0 {
		<-typed
	}
	_, _ = io.WriteString(guest, "Password: ")
	password := line()
	_, _ = io.WriteString(guest, "\r\nwelcome "+name+", "+password+"\r\n$ ")
	command := line()
	_, _ = io.WriteString(guest, command+"\r\ndone\r\n$ ")
	for range typed {
	}
}

// TestPipedInputAnswersThePrompts: a name, a password and a command in one go reach the guest, however long it thinks.
func TestPipedInputAnswersThePrompts(t *testing.T) {
	for name, thinks := range map[string]time.Duration{"a fast guest": time.Millisecond, "an emulated guest": 1500 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, guest := net.Pipe()
				go func() {
					defer guest.Close()
					login(guest, thinks)
				}()
				var out bytes.Buffer
				if err := dictate(t.Context(), strings.NewReader("root\nsecret\nuptime\n"), &out, near); err != nil {
					t.Fatal(err)
				}
				const want = "root\r\nPassword: \r\nwelcome root, secret\r\n$ uptime\r\ndone\r\n$ "
				if out.String() != want {
					t.Errorf("the guest says %q, want %q", out.String(), want)
				}
			})
		})
	}
}

// TestAGuestThatTalksOnIsAnswered, and a line without an end, longer than any buffer, is passed on whole.
func TestAGuestThatTalksOnIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, guest := net.Pipe()
		long := strings.Repeat("x", 10_000)
		var typed bytes.Buffer
		go func() {
			for range 200 {
				if _, err := io.WriteString(guest, "tick\r\n"); err != nil {
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
		}()
		read := make(chan struct{})
		go func() {
			defer close(read)
			_, _ = io.Copy(&typed, guest)
		}()
		began := time.Now()
		if err := dictate(t.Context(), strings.NewReader("first\n"+long), io.Discard, near); err != nil {
			t.Fatal(err)
		}
		guest.Close()
		<-read
		if typed.String() != "first\n"+long || time.Since(began) > time.Minute {
			t.Errorf("after %v the guest has %d bytes", time.Since(began), typed.Len())
		}
	})
}
