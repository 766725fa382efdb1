package console

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/virtctl/client"
)

func vmi(uid types.UID, node string, phase v1.VirtualMachineInstancePhase) *v1.VirtualMachineInstance {
	out := &v1.VirtualMachineInstance{}
	out.Name, out.UID, out.Status.NodeName, out.Status.Phase = "web", uid, node, phase
	return out
}

func TestWhatFollowsTheEndOfAConnection(t *testing.T) {
	here, resource := place{"a", "node1"}, corev1.Resource("virtualmachineinstances")
	for name, c := range map[string]struct {
		was  place
		vmi  *v1.VirtualMachineInstance
		err  error
		want next
	}{
		"the guest is on another node":             {here, vmi("a", "node2", v1.Running), nil, again},
		"the guest is where it was":                {here, vmi("a", "node1", v1.Running), nil, again},
		"the guest has shut down":                  {here, vmi("a", "node1", v1.Succeeded), nil, over},
		"the guest has failed":                     {here, vmi("a", "node1", v1.Failed), nil, over},
		"the VM has started its guest again":       {here, vmi("b", "node1", v1.Running), nil, over},
		"the VMI is gone":                          {here, nil, apierrors.NewNotFound(resource, "web"), over},
		"the user may not read it":                 {here, nil, apierrors.NewForbidden(resource, "web", nil), over},
		"the user could not read it at the begin":  {place{}, vmi("a", "node1", v1.Running), nil, over},
		"the API server does not answer meanwhile": {here, nil, errors.New("connection refused"), later},
	} {
		if got := decideNext(c.was, c.vmi, c.err); got != c.want {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
	}
}

// world is a cluster whose streams are listed in order: nil for a refused one.
type world struct {
	mu      sync.Mutex
	vmi     *v1.VirtualMachineInstance
	streams []net.Conn
	refused int
}

func (w *world) VMI(context.Context, string, string) (*v1.VirtualMachineInstance, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.vmi == nil {
		return nil, apierrors.NewNotFound(corev1.Resource("virtualmachineinstances"), "web")
	}
	return w.vmi, nil
}

func (w *world) Stream(context.Context, client.Ref, string) (net.Conn, error) {
	if len(w.streams) == 0 || w.streams[0] == nil {
		w.refused++
		if len(w.streams) > 0 {
			w.streams = w.streams[1:]
		}
		return nil, errors.New("the VMI is not running")
	}
	next := w.streams[0]
	w.streams = w.streams[1:]
	return next, nil
}

// becomes changes the VMI.
func (w *world) becomes(vmi *v1.VirtualMachineInstance) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.vmi = vmi
}

func opened(t *testing.T, w *world) (*lasting, *[]string) {
	t.Helper()
	var lines []string
	l, err := open(t.Context(), w, client.Ref{Namespace: "lab", Name: "web"}, func(line string) { lines = append(lines, line) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l, &lines
}

func reads(t *testing.T, l *lasting, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(l, got); err != nil || string(got) != want {
		t.Fatalf("got %q, %v, want %q", got, err, want)
	}
}

// The console is refused twice, because the VMI does not show the new node yet, and must continue after one
// message; input from meanwhile must arrive.
func TestAConsoleFollowsItsGuest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, source := net.Pipe()
		nearTarget, target := net.Pipe()
		w := &world{vmi: vmi("a", "node1", v1.Running), streams: []net.Conn{near, nil, nil, nearTarget}}
		l, lines := opened(t, w)
		go func() { _, _ = io.WriteString(source, "before ") }()
		reads(t, l, "before ")
		_ = source.Close()
		typed := make(chan string, 1)
		go func() { _, _ = io.WriteString(l, "ls\n") }()
		go func() {
			got := make([]byte, 3)
			_, _ = io.ReadFull(target, got)
			typed <- string(got)
			_, _ = io.WriteString(target, "after")
		}()
		time.AfterFunc(reopenPause, func() { w.becomes(vmi("a", "node2", v1.Running)) })
		reads(t, l, "after")
		if got := <-typed; got != "ls\n" {
			t.Errorf("the guest was sent %q", got)
		}
		want := "[VM web has migrated from node node1 to node node2; its console goes on]"
		if len(*lines) != 1 || (*lines)[0] != want || w.refused != 2 {
			t.Errorf("the user is told %q after %d refusals, want %q after 2", *lines, w.refused, want)
		}
	})
}

// The source of a migration may accept a connection after the guest has left, and end it.
func TestAConnectionToTheOldNodeIsNotTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, source := net.Pipe()
		nearStale, stale := net.Pipe()
		nearTarget, target := net.Pipe()
		w := &world{vmi: vmi("a", "node1", v1.Running), streams: []net.Conn{near, nearStale, nearTarget}}
		l, lines := opened(t, w)
		_, _ = source.Close(), stale.Close()
		time.AfterFunc(reopenPause/2, func() { w.becomes(vmi("a", "node2", v1.Running)) })
		go func() { _, _ = io.WriteString(target, "after") }()
		reads(t, l, "after")
		want := "[VM web has migrated from node node1 to node node2; its console goes on]"
		if len(*lines) != 1 || (*lines)[0] != want {
			t.Errorf("the user is told %q, want %q", *lines, want)
		}
	})
}

// A replaced virt-handler interrupts a console that shows nothing for an hour, and then again.
func TestAnInterruptionIsToldWithWhatFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, first := net.Pipe()
		nearSecond, second := net.Pipe()
		nearThird, third := net.Pipe()
		w := &world{vmi: vmi("a", "node1", v1.Running), streams: []net.Conn{near, nearSecond, nil, nearThird}}
		l, lines := opened(t, w)
		_ = first.Close()
		time.AfterFunc(time.Hour, func() { _ = second.Close() })
		go func() { _, _ = io.WriteString(third, "after") }()
		reads(t, l, "after")
		want := "[The connection to VM web was interrupted; its console goes on]"
		if len(*lines) != 1 || (*lines)[0] != want {
			t.Errorf("the user is told %q, want %q", *lines, want)
		}
	})
}

func TestAConsoleEndsWithItsGuest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, source := net.Pipe()
		w := &world{vmi: vmi("a", "node1", v1.Running), streams: []net.Conn{near}}
		l, lines := opened(t, w)
		time.AfterFunc(time.Second, func() { w.becomes(vmi("a", "node1", v1.Succeeded)) })
		_ = source.Close()
		if _, err := l.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the end is %v, want EOF", err)
		}
		if len(*lines) != 0 {
			t.Errorf("the user is told %q", *lines)
		}
	})
}

func TestAConsoleThatCannotBeOpenedAgainSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, source := net.Pipe()
		w := &world{vmi: vmi("a", "node1", v1.Running), streams: []net.Conn{near}}
		l, _ := opened(t, w)
		_ = source.Close()
		_, err := l.Read(make([]byte, 1))
		if err == nil || !strings.Contains(err.Error(), "opening the console of VMI web again, which did not succeed within 2m0s: the VMI is not running") {
			t.Errorf("the end is %v", err)
		}
	})
}

// TestAUserLeavesAConsoleThatIsOpenedAgain: closing it must end the wait.
func TestAUserLeavesAConsoleThatIsOpenedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, source := net.Pipe()
		w := &world{vmi: vmi("a", "node1", v1.Running), streams: []net.Conn{near}}
		l, _ := opened(t, w)
		_ = source.Close()
		time.AfterFunc(time.Second, func() { _ = l.Close() })
		began := time.Now()
		if _, err := l.Write([]byte("x")); err == nil {
			t.Error("what was typed went somewhere")
		}
		if _, err := l.Read(make([]byte, 1)); err == nil {
			t.Error("a console that was left can be read")
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("leaving took %v", took)
		}
	})
}
