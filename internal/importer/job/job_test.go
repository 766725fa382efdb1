package job

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"testing"
	"time"

	"drydock.dev/drydock/internal/contracts/transfer"
)

func TestProgressOnlyGrowsAndKnowsTheTimeLeft(t *testing.T) {
	now := time.Unix(1e9, 0)
	m := NewMeter()
	m.now = func() time.Time { return now }
	m.Step("copying")
	m.Advance(0, 1000)
	for _, step := range []struct {
		after            time.Duration
		done, want, left int64
	}{
		{0, 0, 0, -1},
		{time.Second, 100, 100, 9},
		{time.Second, 50, 100, 18},       // a number that goes back is ignored
		{8 * time.Second, 500, 500, 10},  // 50 a second over ten seconds
		{10 * time.Second, 600, 600, 40}, // 10 a second over the last ten
		{time.Second, 1000, 1000, 0},
	} {
		now = now.Add(step.after)
		m.Advance(step.done, 1000)
		if p := m.Progress(); p.Done != step.want || p.SecondsLeft != step.left || p.Total != 1000 {
			t.Errorf("at %d: got %+v, want %+v", step.done, p, step)
		}
	}
}

func TestProgressBeginsAgainWhenNothingIsKept(t *testing.T) {
	m := NewMeter()
	m.Advance(500, 1000)
	m.Reset()
	if p := m.Progress(); p.Done != 0 || p.Total != 0 || p.SecondsLeft != -1 {
		t.Errorf("after that it is %+v", p)
	}
	if m.Advance(10, 20); m.Progress().Done != 10 {
		t.Errorf("and then %+v", m.Progress())
	}
}

func TestProgressIsServed(t *testing.T) {
	m := NewMeter()
	m.Step("waiting for an upload")
	m.Ready(true)
	m.Advance(5, -1)
	w := httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequest("GET", transfer.ProgressPath, nil))
	var got transfer.Progress
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if want := (transfer.Progress{Done: 5, SecondsLeft: -1, Step: "waiting for an upload", Ready: true}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestAFaultIsFoundInAnyError(t *testing.T) {
	cause := errors.New("no route to host")
	fault := Faultf(transfer.ReasonSourceUnreachable, "the server can't be reached: %w", cause)
	err := fmt.Errorf("importing: %w", errors.Join(fault, errors.New("and more")))
	if got := FaultOf(err); got != fault || got.Message != "the server can't be reached: no route to host" || !errors.Is(err, cause) {
		t.Errorf("got %+v", got)
	}
	if got := FaultOf(cause); got.Reason != transfer.ReasonInternal || got.Message != "no route to host" {
		t.Errorf("of another error: got %+v", got)
	}
}

func TestSizesAreSaidAsPeopleDo(t *testing.T) {
	for n, want := range map[int64]string{0: "0 bytes", 1023: "1023 bytes", 1 << 20: "1 MiB", 3 << 29: "1.50 GiB", 1 << 50: "1 PiB", 1 << 62: "4096 PiB"} {
		if got := Bytes(n); got != want {
			t.Errorf("%d: got %q, want %q", n, got, want)
		}
	}
}
