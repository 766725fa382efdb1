package guestusage

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/guest"
	"drydock.dev/drydock/internal/handler/guest/guesttest"
	"drydock.dev/drydock/internal/handler/metrics"
	"drydock.dev/drydock/internal/qemu/migrationstatus"
	"drydock.dev/drydock/internal/qemu/runstate"
)

func TestTheDirtyRateIsMeasuredOnceAMinute(t *testing.T) {
	qemu := guesttest.InState(t, runstate.Running)
	answering(qemu, `{}`)
	var asked []string
	answer := `{"status": "measuring"}`
	qemu.Override("calc-dirty-rate", func(args json.RawMessage) (any, error) {
		asked = append(asked, "calc "+string(args))
		return struct{}{}, nil
	})
	qemu.Override("query-dirty-rate", func(json.RawMessage) (any, error) {
		asked = append(asked, "query")
		return json.RawMessage(answer), nil
	})
	m, g := &Meter{}, guesttest.Open(t, qemu)
	used := spec()
	used.Domain.Memory.Guest = new(resource.MustParse("1Mi")) // the model's process has more
	const calc = `calc {"calc-time":1}`
	for i, step := range []struct {
		after  time.Duration
		answer string
		asked  []string
		rate   metrics.Figure
	}{
		{0, "", nil, metrics.Figure{}}, // nothing is known of its memory
		{10 * time.Second, "", []string{calc}, metrics.Figure{}},
		{20 * time.Second, `{"status": "measuring"}`, []string{"query"}, metrics.Figure{}},
		{30 * time.Second, `{"status": "measured", "dirty-rate": 3}`, []string{"query"}, metrics.Known(3 << 20)},
		{40 * time.Second, "", nil, metrics.Known(3 << 20)},
		{70 * time.Second, "", []string{calc}, metrics.Known(3 << 20)},
		{80 * time.Second, `{"status": "measured", "dirty-rate": -1}`, []string{"query"}, metrics.Figure{}},
		{90 * time.Second, "", nil, metrics.Figure{}},
		{140 * time.Second, "", []string{calc}, metrics.Figure{}},
		{150 * time.Second, `{"status": "measured", "dirty-rate": 0}`, []string{"query"}, metrics.Known(0)},
	} {
		asked, answer = nil, step.answer
		u := m.Measure(t.Context(), Subject{QEMU: g.Guest, Spec: used, Now: start.Add(step.after)})
		if !slices.Equal(asked, step.asked) || u.Guest[metrics.DirtyRate] != step.rate {
			t.Errorf("step %d: QEMU was asked %q, want %q; the rate is %+v, want %+v", i, asked, step.asked, u.Guest[metrics.DirtyRate], step.rate)
		}
	}
	// A guest of whose memory a part is unused is not read, and an old result does not count.
	asked = nil
	for _, after := range []time.Duration{210 * time.Second, 270 * time.Second} {
		u := m.Measure(t.Context(), Subject{QEMU: g.Guest, Spec: spec64(), Now: start.Add(after)})
		if late := after > 260*time.Second; len(asked) > 0 || (u.Guest[metrics.DirtyRate] == metrics.Figure{}) != late {
			t.Errorf("after %s QEMU was asked %q; the rate is %+v", after, asked, u.Guest[metrics.DirtyRate])
		}
	}
}

func spec64() *v1.VirtualMachineInstanceSpec {
	s := spec()
	s.Domain.Memory.Guest = new(resource.MustParse("64Gi"))
	return s
}

func TestOnlyMemoryThatIsAllocatedIsRead(t *testing.T) {
	half, whole, most := metrics.Known(32<<20), metrics.Known(64<<20), metrics.Known(256<<20)
	active := guest.Migration{}
	active.Status = migrationstatus.Active
	grows, huge := spec(), spec()
	grows.Domain.Memory.MaxGuest = new(resource.MustParse("256Mi"))
	huge.Domain.Memory.Hugepages = &v1.Hugepages{PageSize: "2Mi"}
	for i, c := range []struct {
		spec     *v1.VirtualMachineInstanceSpec
		resident metrics.Figure
		want     bool
	}{
		{spec(), metrics.Figure{}, false}, {spec(), half, false}, {spec(), whole, true},
		{grows, whole, false}, {grows, most, true}, {huge, half, true},
	} {
		if got := readable(c.spec, c.resident, guest.Migration{}); got != c.want {
			t.Errorf("case %d: %v", i, got)
		}
		if readable(c.spec, c.resident, active) {
			t.Errorf("case %d: it is read while the guest is migrated", i)
		}
	}
}

// A real QEMU whose guest stands still changes nothing, and measures that.
func TestQEMUMeasuresTheDirtyRate(t *testing.T) {
	conn, _ := guesttest.StartQEMU(t, "-machine", "memory-backend=ram", "-object", "memory-backend-ram,id=ram,size=64M,prealloc=on")
	w := guesttest.Watch(t, conn)
	m, s := &Meter{}, spec()
	s.Domain.Devices.AutoattachMemBalloon = new(false)
	measure := func(after time.Duration) metrics.Figure {
		return m.Measure(t.Context(), Subject{QEMU: w.Guest, Spec: s, Now: start.Add(after)}).Guest[metrics.DirtyRate]
	}
	measure(0)
	measure(10 * time.Second)
	for deadline, tick := time.Now().Add(guesttest.Patience), time.Tick(50*time.Millisecond); ; <-tick {
		var answer dirtyRateAnswer
		if err := w.Monitor().Execute(t.Context(), "query-dirty-rate", nil, &answer); err != nil {
			t.Fatal(err)
		}
		if answer.Status == "measured" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("QEMU's measurement is %q", answer.Status)
		}
	}
	if rate := measure(20 * time.Second); rate != metrics.Known(0) {
		t.Errorf("the rate is %+v", rate)
	}
}
