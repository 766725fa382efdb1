package guest

import (
	"testing"
	"time"

	"drydock.dev/drydock/internal/qemu/migrationstatus"
	"drydock.dev/drydock/internal/qemu/qmptest"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/guestlifecycle"
	"drydock.dev/drydock/internal/rules/machine"
)

const mebibyte = 1 << 20

func TestWhatIsToldOfMemory(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(m hotMemory, after time.Duration) hotMemory { return m.at(now.Add(after)) }
	first := hotMemory{}.with(256*mebibyte, 0, now)
	taking := first.with(256*mebibyte, 64*mebibyte, now.Add(5*time.Second))
	full := hotMemory{}.with(256*mebibyte, 256*mebibyte, now)
	releasing := full.with(128*mebibyte, 256*mebibyte, now).with(128*mebibyte, 192*mebibyte, now.Add(5*time.Second))
	for name, test := range map[string]struct {
		m             hotMemory
		size          int64
		after, looked time.Duration
		kept          string
	}{
		"nothing is known":            {hotMemory{}, 0, 0, 0, ""},
		"what it has":                 {full, 256, 0, 0, ""},
		"what it has after an hour":   {at(full, time.Hour), 256, 0, time.Hour, ""},
		"at first":                    {first, 0, 10 * time.Second, 0, ""},
		"while it is taken":           {taking, 0, 10 * time.Second, 5 * time.Second, ""},
		"nearly at rest":              {at(taking, 15*time.Second-1), 0, 1, 15*time.Second - 1, ""},
		"at rest":                     {at(taking, 15*time.Second), 64, 50 * time.Second, 15 * time.Second, ""},
		"when it has been taken":      {taking.with(256*mebibyte, 256*mebibyte, now.Add(6*time.Second)), 256, 0, 6 * time.Second, ""},
		"while it is released":        {releasing, 256, 10 * time.Second, 5 * time.Second, ""},
		"when some is kept":           {at(releasing, 15*time.Second), 192, 50 * time.Second, 15 * time.Second, ""},
		"while it may need its time":  {at(releasing, 65*time.Second-1), 192, 1, 65*time.Second - 1, ""},
		"when it does not need that":  {at(releasing, 65*time.Second), 192, 0, 65 * time.Second, "the guest does not give its memory back: it has kept 192Mi, of which it is to keep 128Mi, for 1m0s; its system may be using it"},
		"when it does not take more":  {at(taking, 65*time.Second), 64, 0, 65 * time.Second, "the guest does not take the memory that it is given: it has taken 64Mi of 256Mi for 1m0s; its system may have no driver for virtio-mem, or may not bring memory into use"},
		"the same said again":         {at(taking.with(256*mebibyte, 64*mebibyte, now.Add(14*time.Second)), 15*time.Second), 64, 50 * time.Second, 15 * time.Second, ""},
		"another request starts anew": {at(taking, time.Hour).with(512*mebibyte, 64*mebibyte, now.Add(time.Hour)), 64, 10 * time.Second, time.Hour, ""},
	} {
		t.Run(name, func(t *testing.T) {
			looked := now.Add(test.looked)
			if got := test.m.facts(); got.Size != test.size*mebibyte || got.Known != (test.m != hotMemory{}) {
				t.Errorf("it tells %+v, want %d MiB", got, test.size)
			}
			if after := test.m.after(looked); after != test.after {
				t.Errorf("it is looked at after %v, want %v", after, test.after)
			}
			if kept := test.m.keptReason(looked); kept != test.kept {
				t.Errorf("it says %q, want %q", kept, test.kept)
			}
		})
	}
}

// memoryIs waits until the guest is known to have been given so many MiB, and to have taken so many.
func (w *watched) memoryIs(given, has int64) {
	w.t.Helper()
	want := guestlifecycle.Memory{Known: true, Requested: given * mebibyte, Size: has * mebibyte}
	w.await("the memory", func(Facts) bool {
		w.RefreshMemory(w.t.Context())
		return w.Observe().Memory == want
	})
}

func TestMemoryIsGivenAndTaken(t *testing.T) {
	qemu := qmptest.New(t)
	g := open(t, qemu)
	if m := g.Observe().Memory; m.Known {
		t.Errorf("nobody has asked, and it has %+v", m)
	}
	g.RefreshMemory(t.Context())
	g.memoryIs(0, 0)
	if asked := qemu.Executed("query-memory-devices"); asked != 1 {
		t.Errorf("QEMU was asked %d times", asked)
	}
	if err := g.GiveMemory(t.Context(), 128*mebibyte); err != nil || qemu.GivenMemory() != 128*mebibyte {
		t.Fatalf("the guest is given %d: %v", qemu.GivenMemory(), err)
	}
	g.memoryIs(128, 0)
	qemu.TakeMemory(64 * mebibyte)
	g.await("the event", func(Facts) bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.memory.outdated()
	})
	g.memoryIs(128, 0)
	g.clock.pass(memoryStableAfter)
	g.memoryIs(128, 64)
	qemu.TakeMemory(128 * mebibyte)
	g.memoryIs(128, 128)
	if kept := g.KeptMemory(); kept != "" {
		t.Errorf("it says %q", kept)
	}
	if err := g.GiveMemory(t.Context(), mebibyte); err == nil {
		t.Error("half a block was given")
	}
	if err := g.GiveMemory(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	g.clock.pass(memoryPatience)
	g.memoryIs(0, 128)
	if kept := g.KeptMemory(); kept == "" {
		t.Error("what it keeps is not told")
	}
}

// TestAGuestWithPluggedMemoryIsStoppedBeforeItIsSent: it is emulated, as all of the model's are.
func TestAGuestWithPluggedMemoryIsStoppedBeforeItIsSent(t *testing.T) {
	for name, plug := range map[string]func(*qmptest.Server, *watched) error{
		"it was given some": func(_ *qmptest.Server, g *watched) error { return g.GiveMemory(t.Context(), 2*mebibyte) },
		"it has some":       func(qemu *qmptest.Server, _ *watched) error { qemu.TakeMemory(2 * mebibyte); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			m := newMoving(t)
			if err := plug(m.source, m.from); err != nil {
				t.Fatal(err)
			}
			m.begin(t)
			if m.source.Executed("stop") != 1 || !m.source.HasObject(machine.PausedMarker("m")) {
				t.Error("it has not been stopped")
			}
			m.from.await("memory that is sent", at(migrationstatus.Active))
			m.from.await("a guest that is stopped", in(runstate.PausedToMigrate))
			m.handOver(t)
			if err := m.to.Take(t.Context(), "m", nothing, func() {}); err != nil {
				t.Fatal(err)
			}
			m.to.await("a guest that runs", in(runstate.Running))
		})
	}
	m := newMoving(t)
	m.begin(t)
	if m.source.Executed("stop") != 0 {
		t.Error("a guest without plugged memory was stopped")
	}
}

func TestWhichGuestsLoseWrites(t *testing.T) {
	for name, test := range map[string]struct {
		f    Facts
		want bool
	}{
		"nothing plugged":         {Facts{}, false},
		"given":                   {Facts{Memory: guestlifecycle.Memory{Requested: 1}}, true},
		"taken":                   {Facts{Memory: guestlifecycle.Memory{Size: 1}}, true},
		"given and taken, by KVM": {Facts{KVM: true, Memory: guestlifecycle.Memory{Requested: 1, Size: 1}}, false},
	} {
		if got := test.f.LosesWrites(); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestWhatQEMUSaysOfMemoryIsBounded(t *testing.T) {
	for name, test := range map[string]struct {
		requested, size, most int64
		valid                 bool
	}{
		"all of it":             {8, 8, 8, true},
		"as much as can be":     {0, 0, machine.MostRoom, true},
		"more than can be":      {0, 0, machine.MostRoom + 1, false},
		"more is given":         {9, 8, 8, false},
		"more is taken":         {8, 9, 8, false},
		"less than nothing":     {-1, 0, 8, false},
		"less than none is had": {0, -1, 8, false},
	} {
		info := memoryInfo{}
		info.Data.Requested, info.Data.Size, info.Data.Most = test.requested, test.size, test.most
		if err := info.valid(); (err == nil) != test.valid {
			t.Errorf("%s: %v", name, err)
		}
	}
}
