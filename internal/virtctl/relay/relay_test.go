package relay

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func guest(t *testing.T, play func(net.Conn)) net.Conn {
	t.Helper()
	near, far := net.Pipe()
	go func() {
		defer func() { _ = far.Close() }()
		play(far)
	}()
	return near
}

func TestAnAnswerThatComesAfterTheInputIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote := guest(t, func(far net.Conn) {
			_, _ = io.ReadFull(far, make([]byte, len("request")))
			for range 5 { // each pause is shorter than linger, all together are longer
				time.Sleep(linger * 3 / 4)
				_, _ = io.WriteString(far, "x")
			}
			_, _ = io.ReadAll(far) // a guest that never hangs up
		})
		var out bytes.Buffer
		began := time.Now()
		err := Stdio(t.Context(), strings.NewReader("request"), &out, remote)
		if err != nil || out.String() != "xxxxx" {
			t.Errorf("got %q, %v; want all five parts of the answer", out.String(), err)
		}
		if took, want := time.Since(began), 5*(linger*3/4)+linger; took != want {
			t.Errorf("the relay took %v, want %v: it ends when the guest was silent for %v", took, want, linger)
		}
	})
}

func TestAConnectionIsNotCutWhileTheLocalSideIsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local, user := net.Pipe()
		remote := guest(t, func(far net.Conn) {
			time.Sleep(time.Hour)
			_, _ = io.WriteString(far, "late")
		})
		var err error
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			err = Conns(t.Context(), local, remote)
		}()
		answer, readErr := io.ReadAll(user)
		<-ended
		if err != nil || readErr != nil || string(answer) != "late" {
			t.Errorf("got %q, %v, %v; want the late answer and a regular end", answer, err, readErr)
		}
	})
}

func TestTheContextEndsARelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		local, user := net.Pipe()
		defer func() { _ = user.Close() }()
		remote := guest(t, func(far net.Conn) { _, _ = io.ReadAll(far) })
		if err := Conns(ctx, local, remote); err != nil {
			t.Errorf("got %v; want a regular end", err)
		}
		if _, err := user.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the local side was left open: %v", err)
		}
	})
}

type broken struct{ net.Conn }

func (broken) Read([]byte) (int, error) { return 0, errors.New("connection reset") }

func TestABrokenStreamIsReported(t *testing.T) {
	near, far := net.Pipe()
	defer func() { _ = far.Close() }()
	silent, hold := io.Pipe()
	defer func() { _ = hold.Close() }()
	err := Stdio(t.Context(), silent, io.Discard, broken{near})
	if err == nil || err.Error() != "the connection to the guest broke: connection reset" {
		t.Errorf("got %v; want the reason of the break", err)
	}
}
