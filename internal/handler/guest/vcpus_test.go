package guest

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/qemu/qmptest"
)

// places are slots of one thread each, with a CPU in the first ones.
func places(present int) []slot {
	var slots []slot
	for i := range int64(4) {
		s := slot{Driver: "max-x86_64-cpu", Props: map[string]int64{"socket-id": i / 2, "core-id": i % 2, "thread-id": 0}}
		if int(i) < present {
			s.Path = "/machine/cpu" + s.id()
		}
		slots = append(slots, s)
	}
	slices.Reverse(slots) // as QEMU lists them
	return slots
}

func TestWhichCPUsComeAndGo(t *testing.T) {
	for name, test := range map[string]struct {
		present, want int
		plug, unplug  string
	}{
		"as many":                {2, 2, "", ""},
		"one more":               {1, 2, "cpu-0-0-1-0", ""},
		"all":                    {1, 4, "cpu-0-0-1-0 cpu-1-0-0-0 cpu-1-0-1-0", ""},
		"more than there can be": {3, 9, "cpu-1-0-1-0", ""},
		"the last one":           {3, 2, "", "cpu-1-0-0-0"},
		"all but the first":      {4, 1, "", "cpu-1-0-1-0 cpu-1-0-0-0 cpu-0-0-1-0"},
		"the first one stays":    {2, 0, "", "cpu-0-0-1-0"},
	} {
		t.Run(name, func(t *testing.T) {
			ids := func(slots []slot) string {
				var out []string
				for _, s := range slots {
					out = append(out, s.id())
				}
				return strings.Join(out, " ")
			}
			v := vcpus{}.with(places(test.present))
			plug, unplug := v.changes(test.want)
			if v.count() != test.present || ids(plug) != test.plug || ids(unplug) != test.unplug {
				t.Errorf("of %d, plugged are %q and unplugged %q", v.count(), ids(plug), ids(unplug))
			}
		})
	}
}

func TestWhenAGuestIsAskedForItsCPUs(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	three := vcpus{}.with(places(3))
	asked := three
	asked.since, asked.asked = now.Add(-time.Hour), now.Add(-10*time.Second)
	for name, test := range map[string]struct {
		v     vcpus
		want  int
		due   bool
		after time.Duration
	}{
		"nothing is known":             {vcpus{}, 2, false, 0},
		"it has them":                  {three, 3, false, 0},
		"more":                         {three, 4, true, 0},
		"more than there can be":       {vcpus{}.with(places(4)), 5, false, 0},
		"fewer, for the first time":    {three, 2, true, 0},
		"it was asked a moment ago":    {asked, 2, false, 5 * time.Second},
		"more, after it was asked":     {asked, 4, true, 0},
		"the first one is never asked": {vcpus{}.with(places(1)), 0, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if due, after := test.v.due(test.want, now); due != test.due || after != test.after {
				t.Errorf("due: %v, after %v", due, after)
			}
		})
	}
	if due, _ := asked.due(2, asked.asked.Add(15*time.Second)); !due {
		t.Error("it is not asked again")
	}
	if due, _ := asked.due(2, asked.asked.Add(15*time.Second-1)); due {
		t.Error("it is asked again too early")
	}
}

func ost(kind string, source, status int64) qmp.Event {
	data, err := json.Marshal(map[string]any{"info": map[string]any{"slot": "2", "slot-type": kind, "source": source, "status": status}})
	if err != nil {
		panic(err)
	}
	return qmp.Event{Name: "ACPI_DEVICE_OST", Data: data}
}

func TestWhatAGuestAnswersIsHeard(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	three := vcpus{}.with(places(3))
	three.acceptAnswer(three.nextQuestion())
	asked := three
	asked.since, asked.asked = now, now
	refused := asked
	refused.refused = 1
	const refuses = "the guest does not give its CPUs back: its system refuses to (status 0x1); it is asked again and again"
	for name, test := range map[string]struct {
		v    vcpus
		e    qmp.Event
		news bool
		kept string
	}{
		"a refusal":                     {asked, ost("CPU", 3, 1), true, refuses},
		"a refusal of the system's own": {asked, ost("CPU", 0x103, 1), true, refuses},
		"the same once more":            {refused, ost("CPU", 3, 1), false, refuses},
		"it is about to":                {asked, ost("CPU", 3, 0x84), false, ""},
		"it does":                       {asked, ost("CPU", 3, 0), false, ""},
		"it does after all":             {refused, ost("CPU", 3, 0), true, ""},
		"an answer to something else":   {asked, ost("CPU", 0x200, 1), false, ""},
		"of memory":                     {asked, ost("DIMM", 3, 1), false, ""},
		"nobody has asked":              {three, ost("CPU", 3, 1), false, ""},
		"it can't be read":              {asked, qmp.Event{Name: "ACPI_DEVICE_OST", Data: []byte("[")}, false, ""},
		"another event":                 {asked, qmp.Event{Name: "RESET"}, false, ""},
		"something is gone":             {asked, qmp.Event{Name: "DEVICE_DELETED"}, true, ""},
		"something is gone of a guest without room": {vcpus{}, qmp.Event{Name: "DEVICE_DELETED"}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			next, news := test.v.handleEvent(test.e)
			if news != test.news || next.keptReason(now) != test.kept || next.outdated() != (test.e.Name == "DEVICE_DELETED") {
				t.Errorf("news: %v, outdated: %v, it says %q", news, next.outdated(), next.keptReason(now))
			}
		})
	}
	const silent = "the guest does not give its CPUs back: its system has not answered for 15s; it is asked again and again"
	if kept := asked.keptReason(now.Add(15*time.Second - 1)); kept != "" {
		t.Errorf("before its time is over it says %q", kept)
	}
	if kept := asked.keptReason(now.Add(15 * time.Second)); kept != silent {
		t.Errorf("when its time is over it says %q", kept)
	}
	if kept := asked.with(places(2)).keptReason(now.Add(time.Hour)); kept != "" {
		t.Errorf("after it has given one back it says %q", kept)
	}
	if kept := asked.with(places(3)).keptReason(now.Add(time.Hour)); kept != silent {
		t.Errorf("before it has given one back it says %q", kept)
	}
}

// change has the guest be given CPUs up to three, or asked for some of three, and makes sure that it has three right
// after that.
func (w *watched) change(want int) {
	w.t.Helper()
	if err := w.ChangeCPUs(w.t.Context(), want); err != nil || w.Observe().VCPUs != 3 {
		w.t.Fatalf("the guest has %d CPUs, want 3: %v", w.Observe().VCPUs, err)
	}
}

// isDue makes sure that something is to be done for the guest to have so many CPUs, or that it is after a time.
func (w *watched) isDue(want int, is bool, after time.Duration) {
	w.t.Helper()
	if gotIs, gotAfter := w.CPUsDue(want); gotIs != is || gotAfter != after {
		w.t.Errorf("of %d CPUs, something is due: %v, after %v; want %v, %v", want, gotIs, gotAfter, is, after)
	}
}

// tells makes sure that what the guest keeps is told so; "" for nothing.
func (w *watched) tells(part string) {
	w.t.Helper()
	if kept := w.KeptCPUs(); !strings.Contains(kept, part) || (kept == "") != (part == "") {
		w.t.Errorf("it says %q, want %q", kept, part)
	}
}

func TestCPUsArePlugged(t *testing.T) {
	qemu := qmptest.New(t)
	g := open(t, qemu)
	g.isDue(3, false, 0) // nobody has asked which there are
	g.RefreshCPUs(t.Context())
	g.RefreshCPUs(t.Context())
	if asked := qemu.Executed("query-hotpluggable-cpus"); asked != 1 || g.Observe().VCPUs != 1 {
		t.Errorf("%d CPUs, asked for %d times", g.Observe().VCPUs, asked)
	}
	g.isDue(3, true, 0)
	g.change(3)
	g.isDue(3, false, 0)
	if err := g.ChangeCPUs(t.Context(), 2); err == nil || !strings.Contains(err.Error(), "unplugging the CPU cpu-2-0-0-0") {
		t.Fatalf("firmware has released a CPU: %v", err)
	}
}

func TestCPUsAreAskedFor(t *testing.T) {
	qemu := qmptest.New(t)
	qemu.RunSystem()
	g := open(t, qemu)
	g.change(3)
	g.change(2)
	g.isDue(2, false, unplugPatience)
	g.tells("")
	qemu.RefuseCPU(1)
	g.await("the refusal", func(Facts) bool { return strings.Contains(g.KeptCPUs(), "status 0x1") })
	g.clock.pass(unplugPatience)
	g.isDue(2, true, 0)
	g.change(2)
	g.tells("status 0x1") // until it answers something else
	g.isDue(3, false, 0)
	g.tells("")
	g.change(2)
	g.tells("") // an answer to an earlier request says nothing of this one
	g.isDue(0, false, 0)
	qemu.ReleaseCPUs()
	g.await("the CPU to be gone", func(Facts) bool {
		g.RefreshCPUs(t.Context())
		return g.Observe().VCPUs == 2
	})
	g.tells("")
	g.change(3) // by the name of the one that went
}
